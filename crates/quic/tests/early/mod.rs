//! 0-RTT between two honest sides (RFC 9001, section 4.6): accepted, rejected, lost, after Retry.

mod pair;
mod tls;

use bytes::Bytes;
use quic::{Chunk, Dir, Event, ReadError, StreamId};
use units::Duration;
use wire::quic::{PacketType, Parsed, parse_packet};

use crate::support::Pair;

/// What a client sends in 0-RTT, and the answer.
const REQUEST: &[u8] = b"a request that may be repeated";
const ANSWER: &[u8] = b"the answer";

/// Opens a stream with a whole request for 0-RTT.
fn ask(pair: &mut Pair, request: &[u8]) -> StreamId {
    let client = pair.client.connection(0);
    let id = client.open_early(Dir::Bi).expect("0-RTT is possible");
    client.write(id, Bytes::copy_from_slice(request)).expect("the send buffer has space");
    client.finish(id).expect("the stream is open");
    id
}

/// Reads what has arrived of a stream; true at its end.
fn read(pair: &mut Pair, of_server: bool, id: StreamId, into: &mut Vec<u8>) -> bool {
    let node = if of_server { &mut pair.server } else { &mut pair.client };
    loop {
        match node.connection(0).read(pair.now, id, 1 << 16) {
            Ok(Chunk::Bytes(bytes)) => into.extend_from_slice(&bytes.to_bytes()),
            Ok(Chunk::End) => return true,
            Err(ReadError::Blocked) => return false,
            Err(error) => panic!("seed {}: {id}: {error}", pair.seed),
        }
    }
}

/// The server's side of one request: it answers once it has all of it.
#[derive(Default)]
struct Server {
    id: Option<StreamId>,
    request: Vec<u8>,
    /// Whether the request could have been replayed, and whether the handshake was complete then.
    asked: Option<(bool, bool)>,
}

impl Server {
    fn pump(&mut self, pair: &mut Pair) {
        if pair.server.connections.first().is_none_or(Option::is_none) || self.asked.is_some() {
            return;
        }
        if self.id.is_none() {
            self.id = pair.server.connection(0).accept(Dir::Bi);
        }
        let Some(id) = self.id else { return };
        if read(pair, true, id, &mut self.request) {
            let server = pair.server.connection(0);
            self.asked = Some((server.may_be_replayed(id), server.is_established()));
            server.write(id, Bytes::from_static(ANSWER)).expect("a server answers 0-RTT at once");
            server.finish(id).expect("the stream is open");
        }
    }
}

/// Runs until the client has the answer on stream `id`. Returns the server, and the time since the
/// beginning.
fn answered(pair: &mut Pair, id: StreamId, limit: Duration) -> (Server, Duration) {
    let (mut server, mut answer, started) = (Server::default(), Vec::new(), pair.now);
    let done = pair.run_until(limit, |pair| {
        server.pump(pair);
        read(pair, false, id, &mut answer)
    });
    assert!(done, "seed {}: no answer; the server has {:?}", pair.seed, server.request);
    assert_eq!(answer, ANSWER, "seed {}", pair.seed);
    (server, pair.now - started)
}

/// Runs until both sides have confirmed the handshake.
fn confirmed(pair: &mut Pair) {
    let done = pair.run_until(Duration::from_secs(60), |pair| {
        pair.client.take_event(0, |event| *event == Event::Confirmed).is_some()
    });
    assert!(done, "seed {}", pair.seed);
}

/// The types of the packets in a datagram, up to the first one with a short header.
fn long_packets(mut datagram: &[u8]) -> Vec<PacketType> {
    let mut types = Vec::new();
    while let Ok(Parsed::Protected(header)) = parse_packet(datagram, 8) {
        types.push(header.ty);
        if header.ty == PacketType::OneRtt {
            break;
        }
        datagram = &datagram[header.end..];
    }
    types
}
