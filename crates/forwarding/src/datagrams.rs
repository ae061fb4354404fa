//! UDP listeners: each address that packets come from is a flow.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::events::{Events, Label};
use super::frames;
use forward::flows::Flows;
use net::MonotonicClock;
use tokio::net::UdpSocket;

use super::listener::Way;
use super::session::{CONNECTIONS_MAX, Session};
use super::udp::{BATCH_MAX, Batch, FlowEnd, Opening, packet_buffer};

/// A listener forgets a flow after this time without a packet from its side, if it has not ended
/// before. The other end and the session decide when it ends; this bounds the memory.
const FORGOTTEN_AFTER: units::Duration = units::Duration::from_secs(600);

/// The pause after an error of the socket.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Takes packets and sends those of each address over a flow of its own.
pub(crate) async fn forward_packets(socket: Arc<UdpSocket>, way: Arc<Way>) {
    let mut buffer = packet_buffer();
    let flows = Flows::new(FORGOTTEN_AFTER, CONNECTIONS_MAX);
    let mut listener = Listener { socket, way, flows, clock: MonotonicClock::start(), leaving: None };
    loop {
        let mut received = listener.socket.recv_from(buffer.as_mut_slice()).await;
        match &received {
            Ok(_) => {}
            // The answer by ICMP to a packet that an earlier program does not take any more.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
            Err(error) => {
                tracing::warn!(%error, "a UDP listener");
                tokio::time::sleep(ERROR_PAUSE).await;
                continue;
            }
        }
        // Those that have come meanwhile leave together with it.
        for _ in 0..BATCH_MAX {
            let Ok((len, origin)) = received else { break };
            listener.take(&buffer[..len], origin).await;
            received = listener.socket.try_recv_from(buffer.as_mut_slice());
        }
        // One more has been read.
        if let Ok((len, origin)) = received {
            listener.take(&buffer[..len], origin).await;
        }
        listener.flush().await;
    }
}

/// A socket, and the flows of those that send to it.
struct Listener {
    socket: Arc<UdpSocket>,
    way: Arc<Way>,
    flows: Flows<SocketAddr, (Arc<Session>, Arc<Opening>)>,
    clock: MonotonicClock,
    /// Packets that leave next, over this connection.
    leaving: Option<(Arc<Session>, Batch)>,
}

impl Listener {
    /// Sends a packet of the flow from `origin`, and opens the flow for the first one.
    async fn take(&mut self, payload: &[u8], origin: SocketAddr) {
        if let Some((session, opening)) = self.flows.use_now(self.clock.now(), &origin).cloned() {
            let batch = self.batch(&session).await;
            if opening.send(&session, payload, batch) {
                return;
            }
        }
        // While there is no connection, packets are lost, as on any link.
        let Some(session) = self.way.sessions.now() else { return };
        let (opening, waiting) = Opening::new();
        // It waits until the flow is open.
        opening.send(&session, payload, self.batch(&session).await);
        // One that makes way is over when its session finds it idle.
        let _displaced = self.flows.insert(self.clock.now(), origin, (Arc::clone(&session), Arc::clone(&opening)));
        let _idle = self.flows.poll_idle(self.clock.now());
        let (socket, way) = (Arc::clone(&self.socket), Arc::clone(&self.way));
        tokio::spawn(async move {
            let request = (way.request)(Some(origin));
            let label = way.events.label(&origin, &way.shown);
            let end = FlowEnd::to(socket, origin);
            open_flow(&session, &request, &label, end, &opening, waiting, &*way.events).await;
        });
    }

    /// The packets that leave over a connection.
    async fn batch(&mut self, session: &Arc<Session>) -> &mut Batch {
        if self.leaving.as_ref().is_some_and(|(other, _)| !Arc::ptr_eq(other, session)) {
            self.flush().await;
        }
        &mut self.leaving.get_or_insert_with(|| (Arc::clone(session), Batch::default())).1
    }

    async fn flush(&mut self) {
        if let Some((session, mut batch)) = self.leaving.take() {
            session.packets.flush(&session.connection, &mut batch).await;
        }
    }
}

/// Opens a flow with `request` and keeps it until it is over.
pub(crate) async fn open_flow(
    session: &Session,
    request: &forward::message::Message,
    label: &Label,
    end: FlowEnd,
    opening: &Opening,
    waiting: tokio::sync::mpsc::Receiver<bytes::Bytes>,
    events: &dyn Events,
) {
    let (send, mut recv) = match session.open(request).await {
        Ok(streams) => streams,
        Err(error) => return events.refused(label, "not_opened", &error.to_string()),
    };
    let flow = send.id().raw();
    // The first answers of the target may arrive before the answer on the stream.
    let added = session.packets.add(flow, end);
    match frames::answer(&mut recv).await {
        Ok(_) => {
            events.opened(label);
            opening.run(&session.connection, &session.packets, &added.end, waiting, (send, recv)).await;
            events.closed(label, &added.end.carried, &Ok(()));
        }
        Err(failure) => events.refused(label, failure.reason.name(), &failure.to_string()),
    }
}
