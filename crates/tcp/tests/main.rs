//! Connections in pairs over model links.

mod support;
mod transfer;
