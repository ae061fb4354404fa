//! TCP/IP in this process: a stack with addresses of its own on a device, whose peers may be the
//! kernel and every other TCP.
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
//! | [`TcpConfig`] | what connections use, and their timers |

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
mod transparent;
mod udp;

pub use self::device::IpDevice;
pub use self::ethernet::{EthernetConfig, EthernetError};
pub use self::listener::{Incoming, TcpListener};
pub use self::memory::ReceiveMemory;
pub use self::port::PacketPort;
pub use self::stack::{TcpStack, TcpStackConfig};
pub use self::stream::TcpStream;
pub use self::transparent::Opening;
pub use self::udp::UdpPort;
pub use layers::{CipherLayer, DigestLayer, RecordError, SharedSecret, Stack, StackError};
pub use net::tun::{MemoryTun, OpenInterfaceError, OpenTunError, PacketSocket, Tap, Tun};
pub use tcp::{
    AckPolicy, AckThreshold, AckTimer, BufferBudget, CloseReason, KeepAlive, LossRecovery, Md5Key, Md5KeyError, Nagle,
    ReceiveStats, RtoFormula, SendStats, State, TcpConfig, WindowGrowth,
};
pub use tcp_driver::udp::{Datagram, UdpError};
pub use tcp_driver::{Closed, Connect, Count, Layers, Listen, ListenError, TcpInfo, TransparentBounds, WriteError};
