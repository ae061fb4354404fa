//! Everything that touches the operating system on the data path, behind traits with in-memory twins.
//!
//! | module | what it holds |
//! |---|---|
//! | [`datagram`] | the trait [`DatagramSocket`], what is sent ([`Transmit`]) and what arrives ([`RecvMeta`]): start there |
//! | [`udp`] | UDP sockets of the kernel: segmentation and receive offload, ECN, source addresses, devices |
//! | [`memory`] | the twin: sockets that share a network inside one process |
//! | [`tun`] | TUN devices of the kernel with their offloads, super-packets and segments, and a twin in memory |
//! | [`mod@interfaces`] | the host's interfaces and addresses, and what can be reached over them |
//! | [`counters`] | what a socket did, counted |
//! | [`clock`] | the one place that reads the clock |
//! | [`timer`] | what ends a sleep to the nanosecond |
//! | [`processors`] | which processors there are, and threads that stay on one |
//! | [`secret`] | random bytes from the operating system |
#![forbid(unsafe_code)]

pub mod clock;
pub mod counters;
pub mod datagram;
pub mod interfaces;
pub mod memory;
pub mod processors;
pub mod secret;
pub mod timer;
pub mod tun;
pub mod udp;

pub use clock::MonotonicClock;
pub use counters::SocketCounters;
pub use datagram::{BATCH_BYTES_MAX, DatagramSocket, Ecn, RECV_BUFFER_BYTES, RecvMeta, SendError, Transmit};
pub use interfaces::{Interface, InterfaceAddress, interfaces, reachable};
pub use memory::{MemoryNetwork, MemorySocket};
pub use secret::os_random;
pub use timer::FineTimer;
pub use udp::{OpenError, UdpSocket, UdpSocketOptions};
