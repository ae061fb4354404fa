//! Both ends of a terminated connection: the one whose program opens it asks, the other one connects.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forward::message::{Failure, Message, Reason, SynClass};
use forwarding::carry::{Answer, Broken, RESET, carry};
use forwarding::frames::{self, FrameError};
use quic_endpoint::{RecvStream, SendStream};
use tcp_stack::{CloseReason, Closed, Connect, Opening, TcpStack, TcpStream};
use tokio::time::timeout;

use super::class::FlowClass;
use super::flows::FlowGuard;
use super::in_place::in_place;
use super::local::StackConnection;
use super::side::{STREAM_TIME, Side};
use super::told::ToldClass;
use crate::peers::Peer;

/// How long the far end may take to connect: longer than its stack tries, about two minutes.
const CONNECT_TIME: Duration = Duration::from_secs(240);

/// Carries a connection that a program of this side opens, once the peer is connected to its target.
pub(crate) async fn ask(side: &Arc<Side>, opening: Opening, peer: &Arc<Peer>) {
    let (source, target, dscp) = (opening.source(), opening.destination(), opening.dscp());
    let answered = match open(&opening, peer).await {
        Ok(streams) => Ok(streams),
        Err(failure) => {
            tracing::info!(%source, %target, %failure, "the peer did not connect");
            peer.flows.on_failed();
            Err(failure.reason)
        }
    };
    match answered {
        // The answer to the SYN has the class of the target's.
        Ok(((mut send, mut recv), told, answer_dscp)) => match opening.accept_with_dscp(answer_dscp).await {
            Ok(stream) => {
                let guard = peer.flows.begin(source, target);
                run(local(side, peer, stream, &send, &told, dscp), (send, recv), guard).await;
            }
            // The program has given up meanwhile.
            Err(_) => {
                send.reset(RESET);
                recv.stop(RESET);
            }
        },
        Err(Reason::Refused | Reason::NotAllowed) => opening.refuse(),
        Err(Reason::HostUnreachable | Reason::NetworkUnreachable) => opening.report_unreachable(),
        // It tries again, as where packets are lost, until it times out.
        Err(_) => opening.ignore(),
    }
}

/// Opens a stream, and waits until the peer is connected. Returns the DSCP of the target's packets, too.
async fn open(opening: &Opening, peer: &Peer) -> Result<((SendStream, RecvStream), ToldClass, u8), Failure> {
    let other = |error: &str| Failure::new(Reason::Other, error);
    let opened = timeout(STREAM_TIME, peer.connection.open_bi_async()).await;
    let opened = opened.map_err(|_| Failure::new(Reason::Busy, "the peer has too many connections"))?;
    let (mut send, mut recv) = opened.map_err(|error| other(&error.to_string()))?;
    let told = peer.told_classes.expect(send.id());
    let class = SynClass { dscp: opening.dscp(), asks_for_ecn: opening.asks_for_ecn() };
    let request = Message::OpenFrom { source: opening.source(), target: opening.destination(), class };
    frames::send(&mut send, &request).await.map_err(|error| other(&error.to_string()))?;
    let mut answer = frames::receive(&mut recv, CONNECT_TIME).await;
    let mut answer_dscp = 0;
    if let Ok(Message::Class { stream, dscp }) = answer
        && stream == send.id().raw()
    {
        answer_dscp = told.begin_with(dscp);
        answer = frames::receive(&mut recv, frames::PROMPT).await;
    }
    match answer {
        Ok(Message::Connected { .. }) => Ok(((send, recv), told, answer_dscp)),
        Ok(Message::Failed(failure)) => Err(failure),
        Ok(_) => Err(other("the peer answered with another message")),
        Err(error) => Err(other(&error.to_string())),
    }
}

/// Answers a stream that the peer has opened: connects, and carries the data; or takes what it tells of another.
async fn answer(side: &Arc<Side>, peer: &Arc<Peer>, (mut send, mut recv): (SendStream, RecvStream)) {
    let request = match frames::receive(&mut recv, frames::PROMPT).await {
        Ok(request) => request,
        Err(error) => {
            let error = error.to_string();
            tracing::info!(error, "a stream without a request");
            return fail(&mut send, &mut recv, Failure::new(Reason::Unknown, &error)).await;
        }
    };
    if let Message::Class { stream, dscp } = request {
        if peer.told_classes.on_told(stream, dscp) {
            // The end says that it is done. Where it fails, the connection has ended.
            let _over = send.finish();
            return;
        }
        return fail(&mut send, &mut recv, Failure::new(Reason::Unknown, "no connection has this stream")).await;
    }
    let told = peer.told_classes.expect(send.id());
    let connected = tokio::select! {
        connected = connect(&side.stack, peer, &request) => connected,
        // The peer does not want it any more.
        _ = send.stopped_async() => return recv.stop(RESET),
    };
    match connected {
        Ok((stream, guard)) => match tell_connected(side, peer, &stream, &mut send).await {
            Ok(known) => run(local(side, peer, stream, &send, &told, known), (send, recv), guard).await,
            // The connection of the tunnel has ended.
            Err(_) => stream.reset(),
        },
        Err(failure) => {
            tracing::info!(%failure, "not connected for the peer");
            peer.flows.on_failed();
            fail(&mut send, &mut recv, failure).await;
        }
    }
}

/// Answers a request that it is met: first, the DSCP of the target's answer, unless it is 0. Returns the DSCP that
/// the peer knows then.
async fn tell_connected(side: &Side, peer: &Peer, stream: &TcpStream, send: &mut SendStream) -> Result<u8, FrameError> {
    let mut known = 0;
    if peer.takes_answer_class {
        known = side.stack.dscp_of_peer(stream.peer_addr(), stream.local_addr()).unwrap_or(0);
        if known != 0 {
            frames::send(send, &Message::Class { stream: send.id().raw(), dscp: known }).await?;
        }
    }
    frames::send(send, &Message::Connected { local: Some(stream.local_addr()) }).await?;
    Ok(known)
}

/// Answers a request that it is not met.
async fn fail(send: &mut SendStream, recv: &mut RecvStream, failure: Failure) {
    // Where that fails, the connection has ended.
    let _over = frames::send(send, &Message::Failed(failure)).await;
    let _over = send.finish();
    recv.stop(RESET);
}

async fn connect(stack: &TcpStack, peer: &Peer, request: &Message) -> Result<(TcpStream, FlowGuard), Failure> {
    let Message::OpenFrom { source, target, class } = *request else {
        return Err(Failure::new(Reason::Unknown, "a stream begins with another message"));
    };
    if !peer.has_address(source.ip()) {
        return Err(Failure::new(Reason::NotAllowed, &format!("{} is not an address of the peer", source.ip())));
    }
    if is_within_a_host(source, target) {
        return Err(Failure::new(Reason::NotAllowed, &format!("{target} is the address of the program itself")));
    }
    // An attempt ends as it does in the kernel of the program.
    let parameters = Connect::default().with_local(source).with_ecn(class.asks_for_ecn).with_dscp(class.dscp);
    let parameters = parameters.with_ends_if_unreachable(true);
    let stream = stack.connect_with_async(target, parameters).await;
    let stream = stream.map_err(|closed| Failure::new(reason(&closed), &format!("{target}: {closed}")))?;
    Ok((stream, peer.flows.begin(source, target)))
}

/// Whether a connection begins and ends at one host. It does not leave that host, whose kernel would take its packets
/// for forged ones (RFC 1122, section 3.2.1.3, (a)). With equal ports, our TCP would connect to itself (RFC 9293, section
/// 3.5).
pub(crate) fn is_within_a_host(source: SocketAddr, target: SocketAddr) -> bool {
    source.ip() == target.ip()
}

/// The reason that the peer of a connection is told.
pub const fn reason(closed: &Closed) -> Reason {
    match closed {
        Closed::Tcp(CloseReason::Refused | CloseReason::Reset) => Reason::Refused,
        Closed::Tcp(CloseReason::TimedOut) => Reason::TimedOut,
        Closed::Tcp(CloseReason::Unreachable) => Reason::HostUnreachable,
        // The same addresses and ports are still in use, or too many are.
        Closed::Driver(_) => Reason::Busy,
        _ => Reason::Other,
    }
}

/// A connection whose data `send` carries. The peer knows the DSCP `known` of what it receives.
fn local(
    side: &Arc<Side>,
    peer: &Arc<Peer>,
    stream: TcpStream,
    send: &SendStream,
    told: &ToldClass,
    known: u8,
) -> StackConnection {
    let stream = Arc::new(stream);
    told.apply_to(&stream);
    let class = FlowClass::new(side, peer, &stream, send.id(), known);
    StackConnection::with_class(stream, class, &peer.meters)
}

/// Carries the data until both directions have ended, in the threads of the drivers.
async fn run(local: StackConnection, streams: (SendStream, RecvStream), guard: FlowGuard) {
    let carried = async move { carry(local, streams, &guard.carried, Answer::Given).await };
    match in_place(carried).await {
        Some(Ok(())) => {}
        Some(Err(Broken::Local(error))) => tracing::info!(%error, "a terminated connection was reset here"),
        Some(Err(error)) => tracing::info!(%error, "a terminated connection was reset by the peer"),
        None => tracing::error!("a terminated connection was reset: carrying its data panicked"),
    }
}

/// Answers the streams of a peer until its connection ends.
pub(crate) async fn answer_all(side: Arc<Side>, peer: Arc<Peer>) {
    while let Ok(streams) = peer.connection.accept_bi_async().await {
        let (side, peer) = (Arc::clone(&side), Arc::clone(&peer));
        tokio::spawn(async move { answer(&side, &peer, streams).await });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_of_a_host_with_itself_does_not_go_through_the_tunnel() {
        let is_within = |source: &str, target: &str| is_within_a_host(source.parse().unwrap(), target.parse().unwrap());
        assert!(is_within("10.76.0.2:5000", "10.76.0.2:5000") && is_within("[fd76::2]:1", "[fd76::2]:2"));
        assert!(!is_within("10.76.0.2:5000", "10.76.0.1:5000"));
    }
}
