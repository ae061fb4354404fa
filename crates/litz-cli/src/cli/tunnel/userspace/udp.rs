//! Packets of programs: a relay of the SOCKS proxy has a port of the stack for all its targets, and each
//! address that packets for a forwarded port come from has one of its own.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forward::address::{Address, Host};
use forward::flows::Flows;
use forward::socks::{Reply, parse_udp, put_udp_header};
use forwarding::carry::Carried;
use forwarding::events::Events;
use forwarding::socket::Socket;
use forwarding::socks::{associate, refuse};
use forwarding::udp::{PacketBuffer, packet_buffer};
use litz::tcp::UdpPort;
use net::MonotonicClock;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use units::Duration;

use super::tcp::Front;

/// A flow of a forwarded port ends after this time without a packet.
const IDLE_TIME: Duration = Duration::from_secs(120);

/// How often idle flows are looked for.
const IDLE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// Flows of a forwarded port, at a time. A further one ends the one that was idle longest.
const FLOWS_MAX: usize = 1024;

/// Names that a relay has looked up, at a time.
const NAMES_MAX: usize = 256;

/// The pause after an error of a socket that is not about one packet.
const ERROR_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Relays packets of a SOCKS client until it closes its connection (RFC 1928, section 7).
pub(super) async fn relay(front: &Front, socket: Socket, origin: SocketAddr) -> io::Result<()> {
    let Ok(port) = front.network.bind() else { return refuse(socket, Reply::Failed).await };
    associate(socket, |relay| async move { carry_relay(front, &relay, &port, origin.ip()).await }).await
}

/// Carries the packets of a client at `ip`.
async fn carry_relay(front: &Front, relay: &UdpSocket, port: &UdpPort, ip: IpAddr) {
    let (mut buffer, clock) = (packet_buffer(), MonotonicClock::start());
    let mut names: Flows<Address, SocketAddr> = Flows::new(IDLE_TIME, NAMES_MAX);
    let mut client = None;
    loop {
        tokio::select! {
            received = relay.recv_from(buffer.as_mut_slice()) => {
                let Ok((len, from)) = received else {
                    tokio::time::sleep(ERROR_PAUSE).await;
                    continue;
                };
                if from.ip().to_canonical() != ip.to_canonical() {
                    continue;
                }
                client = Some(from);
                let Ok((target, at)) = parse_udp(&buffer[..len]) else { continue };
                let address = match (&target.host, names.use_now(clock.now(), &target)) {
                    (Host::Ip(ip), _) => SocketAddr::new(*ip, target.port),
                    (_, Some(known)) => *known,
                    (_, None) => {
                        // The packets that come meanwhile wait in the socket.
                        let Ok(found) = front.network.addresses_of(&target).await else { continue };
                        let _displaced = names.insert(clock.now(), target, found[0]);
                        found[0]
                    }
                };
                // What the stack does not take now is lost, as on any link.
                let _lost = port.send_to(&buffer[at..len], address);
            }
            datagram = port.receive_async() => {
                let Some(client) = client else { continue };
                let mut packet = Vec::with_capacity(datagram.data.len() + 32);
                put_udp_header(&Address::of(datagram.remote), &mut packet);
                packet.extend_from_slice(&datagram.data);
                let _lost = relay.try_send_to(&packet, client);
            }
        }
    }
}

/// A flow of a forwarded port.
struct Flow {
    port: UdpPort,
    carried: Carried,
    /// Notified when it was idle, or made way for another one.
    is_over: Notify,
}

/// Takes packets of a forwarded port, and sends those of each address from a port of the stack of its own.
pub(super) async fn forward_packets(front: &Front, socket: Arc<UdpSocket>, target: Address) {
    let (mut buffer, clock): (PacketBuffer, _) = (packet_buffer(), MonotonicClock::start());
    let mut flows: Flows<SocketAddr, (Arc<Flow>, SocketAddr)> = Flows::new(IDLE_TIME, FLOWS_MAX);
    // The flows end with the listener.
    let mut tasks = JoinSet::new();
    let mut idle = tokio::time::interval(IDLE_INTERVAL);
    loop {
        tokio::select! {
            received = socket.recv_from(buffer.as_mut_slice()) => {
                let (len, origin) = match received {
                    Ok(received) => received,
                    // The answer by ICMP to a packet that an earlier program does not take any more.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                    Err(error) => {
                        tracing::warn!(%error, "a UDP listener");
                        tokio::time::sleep(ERROR_PAUSE).await;
                        continue;
                    }
                };
                let known = flows.use_now(clock.now(), &origin).cloned();
                let (flow, address) = match known {
                    Some(known) => known,
                    None => {
                        let Some(new) = begin(front, &socket, origin, &target, &mut tasks).await else { continue };
                        if let Some((displaced, _)) = flows.insert(clock.now(), origin, new.clone()) {
                            displaced.is_over.notify_one();
                        }
                        new
                    }
                };
                if flow.port.send_to(&buffer[..len], address).is_ok() {
                    flow.carried.sent.fetch_add(len as u64, Ordering::Relaxed);
                }
            }
            _ = idle.tick() => {
                flows.poll_idle(clock.now()).iter().for_each(|(flow, _)| flow.is_over.notify_one());
                while tasks.try_join_next().is_some() {}
            }
        }
    }
}

/// Begins a flow: a port of the stack, and a task that returns its packets to `origin`.
async fn begin(
    front: &Front,
    socket: &Arc<UdpSocket>,
    origin: SocketAddr,
    target: &Address,
    tasks: &mut JoinSet<()>,
) -> Option<(Arc<Flow>, SocketAddr)> {
    let label = front.report.label(&origin, &format!("udp:{target}"));
    let address = match front.network.addresses_of(target).await {
        Ok(found) => found[0],
        Err(failure) => {
            front.report.refused(&label, failure.reason.name(), &failure.to_string());
            return None;
        }
    };
    let port = match front.network.bind() {
        Ok(port) => port,
        Err(error) => {
            front.report.refused(&label, "no_port", &error.to_string());
            return None;
        }
    };
    front.report.opened(&label);
    let flow = Arc::new(Flow { port, carried: Carried::default(), is_over: Notify::new() });
    let (back, socket, report) = (Arc::clone(&flow), Arc::clone(socket), Arc::clone(&front.report));
    tasks.spawn(async move {
        loop {
            tokio::select! {
                datagram = back.port.receive_async() => {
                    if datagram.remote == address && socket.try_send_to(&datagram.data, origin).is_ok() {
                        back.carried.received.fetch_add(datagram.data.len() as u64, Ordering::Relaxed);
                    }
                }
                () = back.is_over.notified() => break,
            }
        }
        report.closed(&label, &back.carried, &Ok(()));
    });
    Some((flow, address))
}
