//! The loop that takes packets out of a connection and writes them to the TUN device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use litz::{Closed, PathState};
use net::MonotonicClock;
use tunnel::inner::Inner;
use tunnel::shaper::Shaper;
use tunnel::{Arrived, Sink, Unpacker};
use units::{Duration, Instant};

use super::device::Writer;
use super::peers::Peer;

/// How often the paths of a connection are looked at, while packets come. A path that has just opened carries
/// few until then.
const PATHS_INTERVAL: Duration = Duration::from_millis(50);

/// Writes the packets of a peer until its connection ends; returns why. If it `polices`, packets above the
/// peer's rate are dropped.
pub(crate) fn run(peer: &Arc<Peer>, writer: &mut Writer, polices: bool) -> Closed {
    let clock = MonotonicClock::start();
    let mut unpacker = Unpacker::with_udp_runs(writer.takes_udp_super_packets());
    let mut received = Vec::new();
    let mut policer = peer.rate.filter(|_| polices).map(Shaper::receiver);
    let mut paths_at = clock.now();
    let mut sink = PeerSink { peer, writer, policer: policer.as_mut(), now: clock.now() };
    loop {
        let taken = match unpacker.timeout() {
            None => peer.connection.recv_datagrams(&mut received),
            Some(at) => {
                let wait = at.saturating_since(clock.now());
                peer.connection.recv_datagrams_timeout(&mut received, wait.into())
            }
        };
        if let Err(closed) = taken {
            return closed;
        }
        let now = clock.now();
        sink.now = now;
        if now >= paths_at {
            paths_at = now + PATHS_INTERVAL;
            follow_paths(peer, &mut unpacker);
        }
        for datagram in received.drain(..) {
            unpacker.push(now, datagram.path.0 as usize, datagram.data, &mut sink);
        }
        unpacker.handle_timeout(now, &mut sink);
        unpacker.flush(&mut sink);
        publish(peer, &unpacker);
    }
}

/// Tells the order on which paths packets may come.
fn follow_paths(peer: &Peer, unpacker: &mut Unpacker) {
    let stats = peer.connection.stats();
    let open = stats.paths.iter().filter(|path| path.state == PathState::Active);
    unpacker.set_open_paths(open.map(|path| (path.id.0 as usize, path.round_trip)));
}

fn publish(peer: &Peer, unpacker: &Unpacker) {
    let (counters, stats, order) = (&peer.counters, unpacker.stats(), unpacker.order_stats());
    for (counter, value) in [
        (&counters.packets_out, stats.packets),
        (&counters.bytes_out, stats.bytes),
        (&counters.spoofed, stats.spoofed),
        (&counters.malformed, stats.malformed),
        (&counters.incomplete, stats.incomplete),
        (&counters.held, order.held),
        (&counters.lost, order.lost),
        (&counters.expired, order.expired),
        (&counters.late, order.late),
        (&counters.duplicates, order.dropped),
        (&counters.wait_us, unpacker.order().wait().as_micros()),
    ] {
        counter.store(value, Ordering::Relaxed);
    }
}

struct PeerSink<'a> {
    peer: &'a Peer,
    writer: &'a mut Writer,
    policer: Option<&'a mut Shaper>,
    now: Instant,
}

impl Sink for PeerSink<'_> {
    fn allows(&self, inner: &Inner) -> bool {
        self.peer.allows(inner)
    }

    fn deliver(&mut self, packet: &Arrived<'_>) {
        let is_over = self.policer.as_mut().is_some_and(|policer| !policer.admits(self.now, packet.len()));
        if is_over {
            self.peer.counters.over_rate.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.writer.write(packet);
    }
}
