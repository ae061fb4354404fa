//! Operating-system access on the data path: sockets, TUN devices, clock, timers, processors and
//! randomness, behind traits with in-memory implementations.
//!
//! | module | holds |
//! |---|---|
//! | [`datagram`] | the trait [`DatagramSocket`] with [`Transmit`] and [`RecvMeta`]: start here |
//! | [`udp`] | UDP sockets of the kernel: segmentation and receive offload, ECN, source addresses, devices |
//! | [`memory`] | in-memory sockets that share a network inside one process |
//! | [`tun`] | TUN devices with offloads, segmentation and coalescing, and an in-memory device |
//! | [`mod@interfaces`] | the host's interfaces and addresses, and reachability checks |
//! | [`link_watch`] | notification of changes of interfaces, addresses and routes |
//! | [`routing`] | rules, routes, addresses and links: read, set, removed and watched |
//! | [`nftables`] | one nftables table, created with the program `nft` |
//! | [`buffer_pool`] | reusable receive buffers |
//! | [`counters`] | counters of a socket |
//! | [`clock`] | the monotonic clock, read only here |
//! | [`timer`] | a timer with nanosecond resolution |
//! | [`processors`] | the available processors, and thread affinity |
//! | [`secret`] | random bytes from the operating system |
//! | [`testing`] | for tests: sockets that fail, lose datagrams or report another address |
//!
//! This crate contains all platform-specific code of the workspace's data path. It is independent
//! of protocols.
//!
//! This example sends a datagram through a network in memory:
//!
//! ```
//! use net::{DatagramSocket, MemoryNetwork, RecvMeta, Transmit};
//!
//! let network = MemoryNetwork::new();
//! let mut sender = network.bind("127.0.0.1:0".parse().unwrap()).unwrap();
//! let mut receiver = network.bind("127.0.0.1:4433".parse().unwrap()).unwrap();
//! let destination = receiver.local_addr().unwrap();
//! let (source_ip, ecn, segment_size) = (None, None, None);
//! let contents = b"hello";
//! sender.send(&Transmit { destination, source_ip, ecn, contents, segment_size }).unwrap();
//! let mut buffer = [0; 1500];
//! let mut meta = [RecvMeta::default()];
//! assert_eq!(receiver.recv(&mut [&mut buffer], &mut meta).unwrap(), 1);
//! assert_eq!(&buffer[..meta[0].len], b"hello");
//! ```
#![forbid(unsafe_code)]

pub mod buffer_pool;
pub mod clock;
pub mod counters;
pub mod datagram;
pub mod interfaces;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod link_watch;
pub mod memory;
#[cfg(target_os = "linux")]
mod netlink;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod nftables;
pub mod processors;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod routing;
pub mod secret;
pub mod testing;
pub mod timer;
pub mod tun;
pub mod udp;

pub use buffer_pool::{BufferPool, FilledBuffer};
pub use clock::{MonotonicClock, since_epoch};
pub use counters::SocketCounters;
pub use datagram::{BATCH_BYTES_MAX, DatagramSocket, RECV_BUFFER_BYTES, RecvMeta, SendError, Transmit};
pub use interfaces::{Interface, InterfaceAddress, interfaces, reachable};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use link_watch::{LinkNews, LinkWatch, LinkWatchWaker};
pub use memory::{MemoryNetwork, MemorySocket};
pub use secret::os_random;
pub use timer::FineTimer;
pub use udp::{OpenError, PortProbe, UdpSocket, UdpSocketOptions};
pub use units::Ecn;
