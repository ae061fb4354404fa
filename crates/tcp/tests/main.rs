//! Connections in pairs over model links.

mod exact;
mod hostile;
mod support;
mod transfer;
