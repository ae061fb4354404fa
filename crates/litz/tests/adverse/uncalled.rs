//! An application without an endpoint thread makes no call for a while, so the clock jumps for the
//! protocol.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use litz::{Closed, Connection, Endpoint, Placement};

use crate::world::{Variant, Wire, World, pattern};

const IDLE: Duration = Duration::from_secs(1);

/// Both ends in one thread. Each processes datagrams only when it is called.
struct Ends {
    _server: Endpoint,
    _client: Endpoint,
    ours: Connection,
    theirs: Connection,
}

fn ends(world: &World) -> Ends {
    let mut config = world.config();
    config.transport.idle_timeout = units::Duration::from_secs(IDLE.as_secs());
    let (server, client) = (world.server(config.clone()), world.client(config));
    let address = server.local_addr();
    let (ours, theirs) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| server.accept().unwrap());
        (world.connect(&client, address), theirs.join().unwrap())
    });
    Ends { _server: server, _client: client, ours, theirs }
}

#[expect(clippy::disallowed_methods, reason = "a test in which the library is not called for a while")]
fn sleep(span: Duration) {
    std::thread::sleep(span);
}

/// Transfers a stream from one end to the other; after a third of it both applications make no call
/// for `pause`. Returns the reason if not everything arrived.
fn transfer_with_pause(ends: &Ends, pause: Duration) -> Result<(), String> {
    const LEN: usize = 3 << 20;
    let halfway = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            let mut send = ends.ours.open_uni().unwrap();
            let all = pattern(LEN, 1);
            send.write_all(&all[..LEN / 3]).unwrap();
            // Written data is sent only during calls.
            while !halfway.load(Ordering::Relaxed) {
                assert!(ends.ours.closed_timeout(Duration::from_millis(5)).is_none());
            }
            sleep(pause);
            send.write_all(&all[LEN / 3..]).map_err(|error| error.to_string())?;
            send.finish().map_err(|error| error.to_string())?;
            send.wait_finished().map_err(|error| error.to_string())
        });
        let mut recv = ends.theirs.accept_uni().unwrap();
        let mut first = vec![0; LEN / 3];
        recv.read_exact(&mut first).unwrap();
        halfway.store(true, Ordering::Relaxed);
        sleep(pause);
        let mut rest = Vec::new();
        let read = recv.read_to_end(&mut rest).map_err(|error| error.to_string());
        // The sender waits for the last acknowledgement, which is sent only during calls.
        while !writing.is_finished() {
            let _ended = ends.theirs.closed_timeout(Duration::from_millis(5));
        }
        read?;
        writing.join().unwrap()?;
        assert!([first, rest].concat() == pattern(LEN, 1));
        Ok(())
    })
}

#[test]
fn a_pause_shorter_than_the_idle_timeout_does_no_harm() {
    for wire in [Wire::Udp, Wire::Memory] {
        let world = World::new(Variant { wire, placement: Placement::Inline });
        let ends = ends(&world);
        for _ in 0..2 {
            transfer_with_pause(&ends, IDLE / 2).unwrap();
        }
    }
}

#[test]
fn a_pause_longer_than_the_idle_timeout_ends_both_sides_at_once() {
    for wire in [Wire::Udp, Wire::Memory] {
        let world = World::new(Variant { wire, placement: Placement::Inline });
        let ends = ends(&world);
        let clock = net::MonotonicClock::start();
        transfer_with_pause(&ends, IDLE * 2).unwrap_err();
        let took = clock.now().since_start();
        for end in [&ends.ours, &ends.theirs] {
            let closed = end.closed_timeout(IDLE).expect("it knows");
            assert!(matches!(closed, Closed::TimedOut), "{closed:?}");
        }
        assert!(took < units::Duration::from_secs(5), "{wire:?}: known after {took}");
    }
}
