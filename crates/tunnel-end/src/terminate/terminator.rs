//! `Terminator`: our TCP on the TUN device, for the connections that end in it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use net::tun::Tun;
use tcp_stack::{
    IpDevice, KeepAlive, Nagle, PacketPort, StartError, TcpConfig, TcpStack, TcpStackConfig, TransparentBounds,
};
use tokio::runtime::{Builder, Runtime};
use tunnel::inner::Transport;
use tunnel::{Packet, Selector, UrgentKinds};
use units::Duration;

use super::ends;
use super::side::Side;
use crate::device_events::DeviceEvents;
use crate::peers::{Peer, Peers};

/// SYNs that wait for the far end, and what the stack bounds. A SYN beyond these goes through the tunnel as
/// a packet, as do all others of its connection.
const BOUNDS: TransparentBounds = TransparentBounds { openings_max: 1024, connections_max: 32_768 };

/// Threads that carry data between the stack and streams.
const WORKERS: usize = 2;

/// A peer that vanishes is noticed after five minutes. Programs cannot: their probes are answered by the
/// stack of their side.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { after: Duration::from_secs(120), interval: Duration::from_secs(30), probes_max: 6 };

/// As often as Linux sends a SYN, so that an attempt that the far end gives up lasts as long, two minutes.
const SYN_ATTEMPTS_MAX: u32 = 7;

/// TCP flags (RFC 9293, section 3.1).
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const RST: u8 = 0x04;
const FIN: u8 = 0x01;

/// Which connections are terminated, and how the stack's thread waits.
#[derive(Clone, Copy)]
pub struct Termination<'a> {
    /// A connection is terminated if one of them selects it.
    pub selectors: &'a [Selector],
    /// How long the thread polls before it sleeps.
    pub busy_poll: Duration,
}

/// Why there is no TCP on a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TerminatorError {
    /// The stack has not started.
    #[error("{0}")]
    Stack(StartError),
    /// The system refuses the threads that carry data.
    #[error("cannot start the threads of terminated connections: {0}")]
    Runtime(io::Error),
}

/// Our TCP on a TUN device. It ends, with all its connections, when this is dropped.
pub(crate) struct Terminator {
    side: Arc<Side>,
    port: PacketPort,
    selectors: Vec<Selector>,
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
}

impl Terminator {
    /// Starts on `tun`, with packets of at most `mtu` bytes. Connections that programs of this side open are
    /// terminated if one of its selectors selects them. Data of `urgent` kinds pass others. The
    /// stack's thread is the one that handles `events`.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn start(
        tun: &Tun,
        mtu: u16,
        peers: &Arc<Peers>,
        termination: Termination<'_>,
        urgent: UrgentKinds,
        events: Arc<DeviceEvents>,
    ) -> Result<Self, TerminatorError> {
        let port = PacketPort::new(tun.clone());
        let tcp = TcpConfig {
            mtu: mtu.into(),
            // A program's small writes travel as it writes them: its own kernel has decided before.
            nagle: Nagle::Off,
            keep_alive: Some(KEEP_ALIVE),
            syn_attempts_max: SYN_ATTEMPTS_MAX,
            ..TcpConfig::default()
        };
        let config = TcpStackConfig::transparent(IpDevice::port(port.clone()), BOUNDS)
            .with_tcp(tcp)
            .with_busy_poll(termination.busy_poll.into())
            .with_event_handler(events);
        let stack = TcpStack::start(config).map_err(TerminatorError::Stack)?;
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_time().build();
        let runtime = runtime.map_err(TerminatorError::Runtime)?;
        let side = Arc::new(Side { stack, urgent });
        runtime.spawn(ask_all(Arc::clone(&side), Arc::clone(peers)));
        Ok(Self { side, port, selectors: termination.selectors.to_vec(), runtime: Some(runtime) })
    }

    /// Answers the streams of a peer until its connection ends.
    pub(crate) fn serve(&self, peer: &Arc<Peer>) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(ends::answer_all(Arc::clone(&self.side), Arc::clone(peer)));
        }
    }

    /// Whether a packet that was read from the device, on its way to `peer`, is for the stack: it is of a
    /// connection that ends there, or begins one.
    pub(crate) fn takes(&self, packet: &Packet<'_>, peer: &Peer) -> bool {
        let inner = &packet.inner;
        let Some((Transport::Tcp, _)) = inner.transport else { return self.takes_report(packet) };
        let flags = packet.ip[inner.ip_header_bytes + 13];
        let source = SocketAddr::new(inner.source, inner.ports[0]);
        let target = SocketAddr::new(inner.destination, inner.ports[1]);
        let begins = flags & (SYN | ACK | RST | FIN) == SYN && self.begins(source, target, peer);
        // A reset may come from no connection, with the class of none.
        let is_own = if flags & RST == 0 {
            self.side.stack.takes(source, target, inner.traffic_class >> 2)
        } else {
            self.side.stack.owns(source, target)
        };
        begins || is_own
    }

    /// Whether a SYN begins a terminated connection.
    fn begins(&self, source: SocketAddr, target: SocketAddr, peer: &Peer) -> bool {
        // An IPv4 address in IPv6 form is written in its own form in a message.
        let is_canonical = target.ip().to_canonical() == target.ip() && source.ip().to_canonical() == source.ip();
        peer.takes_streams
            && is_canonical
            && !ends::is_within_a_host(source, target)
            && self.selectors.iter().any(|selector| selector.selects(target))
            && self.side.stack.has_space_for_opening()
    }

    /// Whether a packet reports an error about a segment of the stack (RFC 792, RFC 4443).
    fn takes_report(&self, packet: &Packet<'_>) -> bool {
        const ICMP: [u8; 2] = [1, 58];
        if !ICMP.contains(&packet.inner.protocol) {
            return false;
        }
        let Ok(ip) = wire::ip::Packet::parse(packet.ip) else { return false };
        tcp::icmp::error_of(&ip).is_some_and(|error| self.side.stack.owns(error.tuple.remote, error.tuple.local))
    }

    /// Passes a packet that the stack takes to it, with its offload header.
    pub(crate) fn push(&self, packet: Bytes) {
        self.port.push(packet);
    }
}

impl Drop for Terminator {
    fn drop(&mut self) {
        self.side.stack.close();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Asks the peers to connect, for each connection that a program of this side opens.
async fn ask_all(side: Arc<Side>, peers: Arc<Peers>) {
    while let Ok(opening) = side.stack.next_opening().await {
        match peers.of_address(opening.destination().ip()) {
            Some(peer) => {
                let side = Arc::clone(&side);
                tokio::spawn(async move { ends::ask(&side, opening, &peer).await });
            }
            // It is gone since the packet was read.
            None => opening.ignore(),
        }
    }
}
