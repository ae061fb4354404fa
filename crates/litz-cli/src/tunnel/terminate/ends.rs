//! Both ends of a terminated connection: the one whose program opens it asks, the other one connects.

use std::sync::Arc;
use std::time::Duration;

use forward::message::{Failure, Message, Reason, SynClass};
use litz::tcp::{CloseReason, Closed, Connect, Opening, TcpStack, TcpStream};
use litz::{RecvStream, SendStream};
use tokio::time::timeout;

use super::flows::FlowGuard;
use super::local::StackConnection;
use crate::cli::forward::carry::{Answer, Broken, RESET, carry};
use crate::cli::forward::frames;
use crate::tunnel::peers::Peer;

/// How long an attempt waits for a stream, of which the peer bounds the number.
const STREAM_TIME: Duration = Duration::from_secs(10);

/// How long the far end may take to connect: longer than its stack tries, about two minutes.
const CONNECT_TIME: Duration = Duration::from_secs(240);

/// Carries a connection that a program of this side opens, once the peer is connected to its target.
pub(super) async fn ask(opening: Opening, peer: &Peer) {
    let (source, target) = (opening.source(), opening.destination());
    let answered = match open(&opening, peer).await {
        Ok(streams) => Ok(streams),
        Err(failure) => {
            tracing::info!(%source, %target, %failure, "the peer did not connect");
            peer.flows.on_failed();
            Err(failure.reason)
        }
    };
    match answered {
        Ok((mut send, mut recv)) => match opening.accept().await {
            Ok(stream) => run(stream, (send, recv), &peer.flows.begin(source, target)).await,
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

/// Opens a stream, and waits until the peer is connected.
async fn open(opening: &Opening, peer: &Peer) -> Result<(SendStream, RecvStream), Failure> {
    let other = |error: &str| Failure::new(Reason::Other, error);
    let opened = timeout(STREAM_TIME, peer.connection.open_bi_async()).await;
    let opened = opened.map_err(|_| Failure::new(Reason::Busy, "the peer has too many connections"))?;
    let (mut send, mut recv) = opened.map_err(|error| other(&error.to_string()))?;
    let class = SynClass { dscp: 0, asks_for_ecn: opening.asks_for_ecn() };
    let request = Message::OpenFrom { source: opening.source(), target: opening.destination(), class };
    frames::send(&mut send, &request).await.map_err(|error| other(&error))?;
    match frames::receive(&mut recv, CONNECT_TIME).await {
        Ok(Message::Connected { .. }) => Ok((send, recv)),
        Ok(Message::Failed(failure)) => Err(failure),
        Ok(_) => Err(other("the peer answered with another message")),
        Err(error) => Err(other(&error)),
    }
}

/// Answers a stream that the peer has opened: connects, and carries the data.
pub(super) async fn answer(stack: &TcpStack, peer: &Peer, (mut send, mut recv): (SendStream, RecvStream)) {
    let request = match frames::receive(&mut recv, frames::PROMPT).await {
        Ok(request) => request,
        Err(error) => {
            tracing::info!(error, "a stream without a request");
            send.reset(RESET);
            return recv.stop(RESET);
        }
    };
    let connected = tokio::select! {
        connected = connect(stack, peer, &request) => connected,
        // The peer does not want it any more.
        _ = send.stopped_async() => return recv.stop(RESET),
    };
    match connected {
        Ok((stream, guard)) => {
            if frames::send(&mut send, &Message::Connected { local: Some(stream.local_addr()) }).await.is_ok() {
                run(stream, (send, recv), &guard).await;
            } else {
                stream.reset();
            }
        }
        Err(failure) => {
            tracing::info!(%failure, "not connected for the peer");
            peer.flows.on_failed();
            // Where that fails, the connection has ended.
            let _over = frames::send(&mut send, &Message::Failed(failure)).await;
            let _over = send.finish();
            recv.stop(RESET);
        }
    }
}

async fn connect(stack: &TcpStack, peer: &Peer, request: &Message) -> Result<(TcpStream, FlowGuard), Failure> {
    let Message::OpenFrom { source, target, class } = *request else {
        return Err(Failure::new(Reason::Unknown, "a stream begins with another message"));
    };
    if !peer.has_address(source.ip()) {
        return Err(Failure::new(Reason::NotAllowed, &format!("{} is not an address of the peer", source.ip())));
    }
    // An attempt ends as it does in the kernel of the program.
    let parameters = Connect::default().with_local(source).with_ecn(class.asks_for_ecn).with_ends_if_unreachable(true);
    let stream = stack.connect_with_async(target, parameters).await;
    let stream = stream.map_err(|closed| Failure::new(reason(&closed), &format!("{target}: {closed}")))?;
    Ok((stream, peer.flows.begin(source, target)))
}

/// The reason that the peer of a connection is told.
pub(crate) const fn reason(closed: &Closed) -> Reason {
    match closed {
        Closed::Tcp(CloseReason::Refused | CloseReason::Reset) => Reason::Refused,
        Closed::Tcp(CloseReason::TimedOut) => Reason::TimedOut,
        Closed::Tcp(CloseReason::Unreachable) => Reason::HostUnreachable,
        // The same addresses and ports are still in use, or too many are.
        Closed::Driver(_) => Reason::Busy,
        _ => Reason::Other,
    }
}

/// Carries the data until both directions have ended.
async fn run(stream: TcpStream, streams: (SendStream, RecvStream), guard: &FlowGuard) {
    match carry(StackConnection::new(stream), streams, &guard.carried, Answer::Given).await {
        Ok(()) => {}
        Err(Broken::Local(error)) => tracing::info!(%error, "a terminated connection was reset here"),
        Err(error) => tracing::info!(%error, "a terminated connection was reset by the peer"),
    }
}

/// Answers the streams of a peer until its connection ends.
pub(super) async fn answer_all(stack: TcpStack, peer: Arc<Peer>) {
    while let Ok(streams) = peer.connection.accept_bi_async().await {
        let (stack, peer) = (stack.clone(), Arc::clone(&peer));
        tokio::spawn(async move { answer(&stack, &peer, streams).await });
    }
}
