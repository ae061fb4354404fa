//! Connections in pairs over model links.

mod buffers;
mod detached;
mod differential;
mod events;
mod exact;
mod hostile;
mod icmp;
mod journal;
mod middleboxes;
mod path_mtu;
mod random_operations;
mod support;
mod tampering;
mod transfer;
