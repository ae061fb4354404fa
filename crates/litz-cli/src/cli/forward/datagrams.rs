//! UDP listeners: each address that packets come from is a flow.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forward::flows::Flows;
use net::MonotonicClock;
use tokio::net::UdpSocket;

use super::frames;
use super::listener::Way;
use super::session::{CONNECTIONS_MAX, Session};
use super::udp::{FlowEnd, Opening, packet_buffer};

/// A listener forgets a flow after this time without a packet from its side, if it has not ended
/// before. The other end and the session decide when it ends; this bounds the memory.
const FORGOTTEN_AFTER: units::Duration = units::Duration::from_secs(600);

/// The pause after an error of the socket.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Takes packets and sends those of each address over a flow of its own.
pub(super) async fn forward_packets(socket: Arc<UdpSocket>, way: Arc<Way>) {
    let (mut buffer, clock) = (packet_buffer(), MonotonicClock::start());
    let mut flows: Flows<SocketAddr, (Arc<Session>, Arc<Opening>)> = Flows::new(FORGOTTEN_AFTER, CONNECTIONS_MAX);
    loop {
        let (len, origin) = match socket.recv_from(buffer.as_mut_slice()).await {
            Ok(received) => received,
            // The answer by ICMP to a packet that an earlier program does not take any more.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
            Err(error) => {
                tracing::warn!(%error, "a UDP listener");
                tokio::time::sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        let payload = &buffer[..len];
        if let Some((session, opening)) = flows.use_now(clock.now(), &origin)
            && opening.send(&session.connection, &session.packets, payload)
        {
            continue;
        }
        // While there is no connection, packets are lost, as on any link.
        let Some(session) = way.sessions.now() else { continue };
        let (opening, waiting) = Opening::new();
        opening.send(&session.connection, &session.packets, payload);
        // One that makes way is over when its session finds it idle.
        let _displaced = flows.insert(clock.now(), origin, (Arc::clone(&session), Arc::clone(&opening)));
        let _idle = flows.poll_idle(clock.now());
        let (socket, way) = (Arc::clone(&socket), Arc::clone(&way));
        tokio::spawn(async move {
            let request = (way.request)(Some(origin));
            let label = way.report.label(&origin, &way.shown);
            let end = FlowEnd::to(socket, origin);
            open_flow(&session, &request, &label, end, &opening, waiting, &way.report).await;
        });
    }
}

/// Opens a flow with `request` and keeps it until it is over.
pub(super) async fn open_flow(
    session: &Session,
    request: &forward::message::Message,
    label: &super::report::Label,
    end: FlowEnd,
    opening: &Opening,
    waiting: tokio::sync::mpsc::Receiver<bytes::Bytes>,
    report: &super::report::Report,
) {
    let (send, mut recv) = match session.open(request).await {
        Ok(streams) => streams,
        Err(error) => return report.refused(label, "not_opened", &error),
    };
    let flow = send.id().raw();
    // The first answers of the target may arrive before the answer on the stream.
    let added = session.packets.add(flow, end);
    match frames::answer(&mut recv).await {
        Ok(_) => {
            report.opened(label);
            opening.run(&session.connection, &session.packets, &added.end, waiting, (send, recv)).await;
            report.closed(label, &added.end.carried, &Ok(()));
        }
        Err(failure) => report.refused(label, failure.reason.name(), &failure.to_string()),
    }
}
