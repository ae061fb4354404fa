//! A TCP/IP stack in this process, with its own addresses on a device; its peers may be the kernel
//! and every other TCP.
//!
//! | item | content |
//! |---|---|
//! | [`TcpStack`] | connects and listens |
//! | [`TcpListener`] | a port that accepts connections |
//! | [`TcpStream`] | a connection, with blocking and asynchronous calls |
//! | [`TcpInfo`] | the state of a connection and its counters |
//! | [`UdpPort`] | a UDP port |
//! | [`IpDevice`] | a TUN or TAP device of the kernel, an Ethernet interface, or a device in memory |
//! | [`PacketPort`], [`Opening`] | a stack for every address, on a device that has other users, too |
//! | [`replicated`] | one stream over several connections with a stack each |
//! | [`Layers`], [`Stack`] | security layers above and below TCP |
//! | [`TcpConfig`] | features, limits and timers of connections |
//!
//! With the feature `tokio`, a [`TcpStream`] implements tokio's `AsyncRead` and `AsyncWrite`. Calls
//! that end in `_async` need no feature.
#![forbid(unsafe_code)]

mod device;
mod ethernet;
mod listener;
mod memory;
mod port;
pub mod replicated;
mod runtime;
mod stack;
mod stream;
mod stream_async;
#[cfg(feature = "tokio")]
mod stream_tokio;
mod transparent;
mod udp;

pub use crate::device::IpDevice;
pub use crate::ethernet::{EthernetConfig, EthernetError};
pub use crate::listener::{Incoming, TcpListener};
pub use crate::memory::ReceiveMemory;
pub use crate::port::PacketPort;
pub use crate::stack::{TcpStack, TcpStackConfig};
pub use crate::stream::TcpStream;
pub use crate::transparent::Opening;
pub use crate::udp::UdpPort;
pub use engine::{EventHandler, Placement, PlacementError, ReceiveWorkerStats, StartError};
pub use layers::{CipherLayer, DigestLayer, RecordError, SharedSecret, Stack, StackError};
pub use net::tun::{MemoryTun, OpenInterfaceError, OpenTunError, PacketSocket, Tap, Tun};
pub use tcp::{
    AckPolicy, AckThreshold, AckTimer, BufferBudget, CloseReason, KeepAlive, LossRecovery, Md5Key, Md5KeyError, Nagle,
    ReceiveStats, RtoFormula, SendStats, State, TcpConfig, WindowGrowth,
};
pub use tcp_driver::udp::{Datagram, UdpError};
pub use tcp_driver::{Closed, Connect, Count, Layers, Listen, ListenError, TcpInfo, TransparentBounds, WriteError};
