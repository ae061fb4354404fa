//! Connections in pairs over model links.

mod hostile;
mod icmp;
mod support;
mod transfer;
