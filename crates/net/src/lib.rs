//! Everything that touches the operating system on the data path, behind traits with in-memory twins.
//!
//! | module | what it holds |
//! |---|---|
//! | [`datagram`] | the trait [`DatagramSocket`], what is sent ([`Transmit`]) and what arrives ([`RecvMeta`]): start there |
//! | [`udp`] | UDP sockets of the kernel: segmentation and receive offload, ECN, source addresses, devices |
//! | [`memory`] | the twin: sockets that share a network inside one process |
//! | [`counters`] | what a socket did, counted |
//! | [`clock`] | the one place that reads the clock |
//! | [`secret`] | random bytes from the operating system |
#![forbid(unsafe_code)]

pub mod clock;
pub mod counters;
pub mod datagram;
pub mod memory;
pub mod secret;
pub mod udp;

pub use clock::MonotonicClock;
pub use counters::SocketCounters;
pub use datagram::{BATCH_BYTES_MAX, DatagramSocket, Ecn, RECV_BUFFER_BYTES, RecvMeta, SendError, Transmit};
pub use memory::{MemoryNetwork, MemorySocket};
pub use secret::os_random;
pub use udp::{OpenError, UdpSocket, UdpSocketOptions};
