//! Connections in pairs over model links.

mod icmp;
mod support;
mod transfer;
