//! Reports of detached receive halves while the receive worker always has more to receive.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;

use driver::RECV_BATCHES_MAX;
use driver::protocol::Cell;
use units::Duration;

use crate::detached::REPORT_WITHIN;
use crate::host::{Placement, address};
use crate::link::Quality;
use crate::simulation::World;
use crate::wire::{ACK, HEADER_LEN, Header};

/// The time between two turns of the worker.
const TURN: Duration = Duration::from_micros(100);

/// Length of a payload whose segment fills a batch.
const FULL_LEN: usize = (16 << 10) - HEADER_LEN;

#[test]
fn the_acknowledgement_of_a_half_is_not_delayed_by_another_half_that_is_always_busy() {
    let mut world = World::new(Placement::Split, Quality::PERFECT, 5);
    // Bulk arrives on two connections, so that the server detaches both receive halves.
    let chunk: Arc<[u8]> = vec![7; 64 << 10].into();
    let [(quiet, _), (_, busy)] = [(); 2].map(|()| {
        let cell = world.connect();
        let accepted = world.next_accepted();
        assert!(cell.write(&chunk, Waker::noop()));
        (cell, accepted)
    });
    world.settle();
    let stats = world.hosts[1].counters.split.as_ref().expect("it has a worker").read();
    assert_eq!(stats.detached - stats.returned, 2, "{stats:?}");

    // Outdated segments of the busy connection: nothing about them is worth a report.
    let SocketAddr::V4(source) = busy.remote() else { panic!("the toy protocol runs over IPv4") };
    let header =
        Header { source, destination: address(1), flags: ACK, len: FULL_LEN as u16, seq: 0, ack: 0, limit: 0, held: 0 };
    let mut outdated = Vec::new();
    header.write(&mut outdated, |_| {});
    let inject = |world: &World, batches: usize| {
        (0..batches).for_each(|_| world.link.inject(world.clock.now(), 1, outdated.clone()));
    };
    inject(&world, RECV_BATCHES_MAX);

    // One segment of the quiet connection arrives.
    let answers = world.link.traffic()[1].sent;
    let segment: Arc<[u8]> = vec![7; 100].into();
    assert!(quiet.write(&segment, Waker::noop()));
    world.hosts[0].driver.turn();
    let sent_at = world.clock.now();
    while world.link.traffic()[1].sent == answers {
        let now = world.clock.now();
        assert!(now <= sent_at + REPORT_WITHIN + TURN * 4, "the acknowledgement is late");
        // After each turn there is more to receive.
        inject(&world, RECV_BATCHES_MAX);
        let worker = world.hosts[1].worker.as_mut().expect("it has a worker");
        worker.turn();
        assert_eq!(worker.due_at(now), Some(now), "the worker is busy");
        if world.hosts[1].driver.due_at(now).is_some_and(|at| at <= now) {
            world.hosts[1].driver.turn();
        }
        world.clock.advance_to(now + TURN);
    }
}
