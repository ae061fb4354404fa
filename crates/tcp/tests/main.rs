//! Connections in pairs over model links.

mod hostile;
mod support;
mod transfer;
