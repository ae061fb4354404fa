//! Bad input, floods, refusals, panics, and the end of an endpoint.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use driver::shared::AcceptOutcome;
use driver::{DriverLimits, EndReason};
use units::{Duration, Instant, Ratio, Rng};

use crate::app::{End, Fault, ToyCell};
use crate::connection::SYN_REPEATS_MAX;
use crate::host::{LIMITS, Placement, SERVICE, address};
use crate::link::Quality;
use crate::packets::Segments;
use crate::protocol::{RESET_PERIOD, RESETS_MAX, RESETS_WAITING_MAX};
use crate::simulation::{LOSSY, World};
use crate::transfer::Transfer;
use crate::wire::{ACK, FIN, Header, RST, SYN};

const CALM: Quality = Quality { delay: Duration::from_millis(2), tick: Duration::from_millis(1), ..Quality::PERFECT };

/// Returns a header from `source` to the service of the second host.
fn header(source: SocketAddrV4, flags: u8) -> Header {
    Header { source, destination: address(1), flags, len: 0, seq: 1000, ack: 0, limit: 0, held: 0 }
}

fn segment(header: &Header) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.write(&mut bytes, |payload| payload.fill(7));
    bytes
}

/// Returns an address of an attacker.
fn attacker(number: u32) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(0xc000_0000 + number), 1024 + (number % 50_000) as u16)
}

/// Returns input that must have no effect: truncated, random, or forged for the connections at
/// ports from 40,000.
fn bad_input(rng: &mut Rng, host: usize) -> Vec<u8> {
    let connection = SocketAddrV4::new(*address(0).ip(), 40_000 + rng.below(3) as u16);
    let (source, destination) = if host == 1 { (connection, address(1)) } else { (address(1), connection) };
    // No flags, or flags and numbers that no peer can send.
    let flags = [SYN, SYN | ACK, RST, RST | ACK, ACK, ACK | FIN, FIN][rng.below(7) as usize];
    let forged = Header {
        source,
        destination,
        flags,
        len: rng.below(1400) as u16,
        seq: (1 << 60) + rng.below(1 << 50),
        ack: (1 << 60) + rng.below(1 << 50),
        limit: 0,
        held: rng.below(10) as u16,
    };
    let mut bytes = segment(&forged);
    match rng.below(4) {
        0 => {
            bytes.resize(rng.below(200) as usize + 1, 0);
            rng.fill(&mut bytes);
        }
        1 => bytes.truncate(rng.below(bytes.len() as u64 - 1) as usize + 1),
        2 => {
            // A false length.
            bytes[14] = rng.below(256) as u8;
        }
        _ => {}
    }
    bytes
}

#[test]
fn bad_input_does_no_harm() {
    for placement in Placement::ALL {
        let mut world = World::new(placement, LOSSY, 21);
        world.add_transfers(3, 512 << 10);
        let mut rng = Rng::from_seed(99);
        let mut injected = 0;
        world.run_until(|world| {
            let soon = world.clock.now() + Duration::from_millis(1);
            for host in 0..2 {
                world.link.inject(soon, host, bad_input(&mut rng, host));
                injected += 1;
            }
            world.is_done()
        });
        assert!(injected > 200, "{injected}");
    }
}

#[test]
fn a_flood_of_first_segments_leaves_no_state_and_does_not_keep_others_out() {
    let mut world = World::new(Placement::Thread, Quality { capacity: 10_000, ..CALM }, 1);
    for number in 0..5000 {
        world.link.inject(Instant::ZERO, 1, segment(&header(attacker(number), SYN)));
    }
    world.settle();
    assert_eq!(world.link.traffic()[1].sent, 5000, "each is answered with a cookie");
    assert_eq!(world.hosts[1].shared.common.connection_count(), 0);
    // Cookies of other connections, and no cookie.
    for number in 0..1000 {
        let third = Header { seq: 1001, ack: u64::from(number) * 77, ..header(attacker(number), ACK) };
        world.link.inject(world.clock.now(), 1, segment(&third));
    }
    world.settle();
    assert_eq!(world.hosts[1].shared.common.connection_count(), 0);
    world.add_transfers(2, 64 << 10);
    world.run();
}

#[test]
fn connections_that_are_not_accepted_are_bounded_and_later_ones_begin_when_there_is_space() {
    for placement in Placement::ALL {
        let limits = DriverLimits { half_open_max: 4, ..LIMITS };
        let mut world = World::with_limits(placement, CALM, 1, limits);
        let cells: Vec<Arc<ToyCell>> = (0..10).map(|_| world.connect()).collect();
        world.run_until(|world| world.clock.now() >= Instant::ZERO + Duration::from_secs(1));
        let connected = cells.iter().filter(|cell| cell.is_connected()).count();
        assert_eq!((connected, world.hosts[1].shared.common.connection_count()), (4, 4), "{placement:?}");
        for (number, cell) in (0..).zip(&cells) {
            world.add_transfer(Transfer::new(Arc::clone(cell), true, number, 10_000), finished);
        }
        for _ in 0..10 {
            let cell = world.next_accepted();
            let number = crate::transfer::connection_number(&cell);
            world.add_transfer(Transfer::new(cell, false, number, 10_000), finished);
        }
        world.run();
    }
}

fn finished(end: &End) {
    assert_eq!(*end, End::Finished);
}

#[test]
fn a_connection_that_cannot_begin_reports_the_reason() {
    let limits = DriverLimits { connections_max: 2, ..LIMITS };
    let mut world = World::with_limits(Placement::Inline, CALM, 1, limits);
    let end = |world: &mut World, cell: &Arc<ToyCell>| {
        world.run_until(|_| cell.poll_end(Waker::noop()).is_some());
        cell.poll_end(Waker::noop())
    };
    let closed_port = SocketAddrV4::new(*address(1).ip(), SERVICE + 1);
    let refused = ToyCell::connect(&world.hosts[0].shared, closed_port).expect("the endpoint is open");
    assert_eq!(end(&mut world, &refused), Some(End::Reset), "the endpoint of the peer answers");
    let cells = [world.connect(), world.connect(), world.connect()];
    assert_eq!(end(&mut world, &cells[2]), Some(End::Closed(EndReason::TooMany)));
    let mut world = World::new(Placement::Inline, Quality { loss: Ratio::ONE, ..CALM }, 1);
    let cell = world.connect();
    assert_eq!(end(&mut world, &cell), Some(End::TimedOut));
    assert!(world.link.traffic()[0].lost > u64::from(SYN_REPEATS_MAX), "the first segment is repeated");
}

#[test]
fn unknown_segments_are_answered_at_a_bounded_rate_and_delayed_answers_are_sent_when_due() {
    let mut world = World::new(Placement::Thread, Quality::PERFECT, 1);
    for number in 0..100 {
        world.link.inject(Instant::ZERO, 1, segment(&header(attacker(number), ACK)));
    }
    let mut times = Vec::new();
    let all = u64::from(RESETS_MAX) + RESETS_WAITING_MAX as u64;
    world.run_until(|world| {
        times.push((world.clock.now(), world.link.traffic()[1].sent));
        world.link.traffic()[1].sent == all
    });
    assert_eq!(times[0], (Instant::ZERO, u64::from(RESETS_MAX)));
    let periods = RESETS_WAITING_MAX as u64 / u64::from(RESETS_MAX);
    assert_eq!(world.clock.now(), Instant::ZERO + RESET_PERIOD * periods);
    assert!(times.windows(2).all(|pair| pair[1].1 - pair[0].1 <= u64::from(RESETS_MAX)), "{times:?}");
    // Segments without an answer: a reset, and a damaged one.
    let mut damaged = segment(&header(attacker(1), ACK));
    damaged[20] ^= 1;
    world.link.inject(world.clock.now(), 1, damaged);
    world.link.inject(world.clock.now(), 1, segment(&header(attacker(1), RST)));
    world.settle();
    assert_eq!(world.link.traffic()[1].sent, all);
}

/// The number of packets for [`flood_detached`].
const FLOOD: u16 = 200;

/// Sends one batch to two connections of the second host with detached receive halves, whose
/// packets need the whole connections: the ring to the driver takes a part of them, and the
/// connections another part. Returns the number of unrouted packets before.
fn flood_detached(world: &mut World) -> u64 {
    world.run_until(|world| {
        let stats = world.hosts[1].counters.split.as_ref().expect("the host has a receive worker").read();
        stats.detached - stats.returned == 2
    });
    let before = world.hosts[1].driver.driver.unrouted_packets();
    for number in 0..FLOOD {
        let source = SocketAddrV4::new(*address(0).ip(), 40_000 + number % 2);
        world.link.inject(world.clock.now(), 1, segment(&header(source, SYN)));
    }
    before
}

#[test]
fn packets_that_find_no_space_before_the_driver_are_counted() {
    let mut world = World::new(Placement::Split, CALM, 5);
    world.add_transfers(2, 3 << 20);
    let before = flood_detached(&mut world);
    world.settle();
    // The ring holds 64. While the receive halves are detached, each connection keeps eight.
    let dropped = world.hosts[1].driver.driver.unrouted_packets() - before;
    assert!((u64::from(FLOOD) - 64 + 1..=u64::from(FLOOD) - 16).contains(&dropped), "{dropped}");
    world.run();
}

#[test]
fn packets_that_wait_for_a_receive_half_are_counted_if_it_is_lost() {
    let mut world = World::new(Placement::Split, CALM, 5);
    for number in 0..2 {
        let cell = world.connect();
        world.add_transfer(Transfer::new(cell, true, number, 3 << 20), |_| {});
        let accepted = world.next_accepted();
        world.add_transfer(Transfer::new(accepted, false, number, 3 << 20), |end| {
            assert_eq!(*end, End::Closed(EndReason::ProcessorGone));
        });
    }
    let before = flood_detached(&mut world);
    let host = &mut world.hosts[1];
    host.worker.as_mut().expect("the host has a receive worker").turn();
    host.driver.turn();
    host.worker = None;
    world.settle();
    // Each connection kept eight until then. A connection that has ended ignores the others.
    let dropped = world.hosts[1].driver.driver.unrouted_packets() - before;
    assert_eq!(dropped, u64::from(FLOOD));
}

#[test]
fn a_batch_is_split_where_its_segments_belong_to_another_connection() {
    use driver::protocol::Batch;
    use driver::{Protocol, Route};

    let toy = crate::protocol::Toy::new(*address(1).ip(), 1, [SERVICE]);
    let first = segment(&Header { len: 100, ..header(attacker(1), ACK) });
    let second = segment(&header(attacker(2), SYN));
    let mut batch = Segments { bytes: [first.clone(), first.clone(), second.clone(), second[..30].to_vec()].concat() };
    assert_eq!(batch.packet_count(), 3);
    assert_eq!(crate::protocol::Toy::route_id(&batch).map(|(len, _)| len), Some(2 * first.len()));
    // Routed one at a time, because the first may begin a connection that the second belongs to.
    assert_eq!(toy.route(&batch), (first.len(), Route::Reply));
    let front = batch.split_front(2 * first.len());
    assert_eq!((front.len_bytes(), front.packet_count()), (2 * first.len(), 2));
    assert_eq!(toy.route(&batch), (second.len(), Route::Begins));
    let _syn = batch.split_front(second.len());
    assert_eq!(toy.route(&batch), (30, Route::Unknown), "cut short");
}

#[test]
fn a_panic_ends_only_its_connection() {
    let faults = [
        Fault::Serve,
        Fault::Absorb,
        Fault::Job,
        Fault::FinishJob,
        Fault::Events,
        Fault::Plan,
        Fault::Seal,
        Fault::Timeout,
    ];
    for placement in Placement::ALL {
        for fault in faults {
            let mut world = World::new(placement, LOSSY, 5);
            let ends = Rc::new(RefCell::new(Vec::new()));
            for number in 0..3 {
                let cell = world.connect();
                let client = Transfer::new(cell, true, number, 3 << 20).with_fault((number == 1).then_some(fault));
                let ended = Rc::clone(&ends);
                world.add_transfer(client, move |end| ended.borrow_mut().push((number, end.clone())));
                let accepted = world.next_accepted();
                world.add_transfer(Transfer::new(accepted, false, number, 3 << 20), move |end| {
                    assert_eq!(*end, if number == 1 { End::Reset } else { End::Finished }, "{number}");
                });
            }
            world.run();
            let mut ends = ends.borrow().clone();
            ends.sort_by_key(|(number, _)| *number);
            let gone = End::Closed(EndReason::ProcessorGone);
            assert_eq!(ends, [(0, End::Finished), (1, gone), (2, End::Finished)], "{placement:?} {fault:?}");
            assert_eq!(world.hosts[0].shared.common.connection_count(), 0, "{placement:?} {fault:?}");
        }
    }
}

#[test]
fn a_connection_that_is_aborted_resets_its_peer() {
    for placement in Placement::ALL {
        let mut world = World::new(placement, CALM, 5);
        let client = world.connect();
        let server = world.next_accepted();
        client.abort();
        world.run_until(|_| client.poll_end(Waker::noop()).is_some() && server.poll_end(Waker::noop()).is_some());
        assert_eq!(client.poll_end(Waker::noop()), Some(End::Closed(EndReason::EndpointClosed)), "{placement:?}");
        assert_eq!(server.poll_end(Waker::noop()), Some(End::Reset), "{placement:?}");
    }
}

#[test]
fn a_stopped_endpoint_resets_its_connections_and_notifies_all_handles() {
    for placement in Placement::ALL {
        let mut world = World::new(placement, CALM, 5);
        let mut client = Transfer::new(world.connect(), true, 0, u64::MAX);
        let server = world.next_accepted();
        let mut sink = Transfer::new(Arc::clone(&server), false, 0, u64::MAX);
        let idle = world.connect();
        world.add(move |waker| {
            sink.step(waker);
            false
        });
        let ended = Rc::new(RefCell::new(None));
        let reported = Rc::clone(&ended);
        world.add(move |waker| {
            client.step(waker);
            *reported.borrow_mut() = client.end().cloned();
            reported.borrow().is_some()
        });
        world.run_until(|world| world.clock.now() >= Instant::ZERO + Duration::from_millis(50));
        assert!(idle.is_connected(), "it is open and was not accepted");
        world.hosts[1].shared.stop();
        world.run_until(|world| world.hosts[1].driver.driver.is_drained());
        world.run_until(|_| ended.borrow().is_some() && idle.poll_end(Waker::noop()).is_some());
        assert_eq!(*ended.borrow(), Some(End::Reset), "{placement:?}");
        assert_eq!(idle.poll_end(Waker::noop()), Some(End::Reset), "{placement:?}");
        assert_eq!(server.poll_end(Waker::noop()), Some(End::Closed(EndReason::EndpointClosed)), "{placement:?}");
        let shared = Arc::clone(&world.hosts[1].shared);
        assert_eq!(shared.common.connection_count(), 0, "{placement:?}");
        assert_eq!(ToyCell::connect(&shared, address(0)).err(), Some(EndReason::EndpointClosed));
        drop(world);
        // The waiting connection was accepted before it ended. There is no other.
        assert!(matches!(shared.poll_accept(Waker::noop()), AcceptOutcome::Connection(_)));
        assert!(matches!(shared.poll_accept(Waker::noop()), AcceptOutcome::Stopped));
    }
}

#[test]
fn dropping_a_driver_ends_its_connections_and_its_worker() {
    for placement in Placement::ALL {
        let mut world = World::new(placement, CALM, 5);
        let mut client = Transfer::new(world.connect(), true, 0, u64::MAX);
        let server = world.next_accepted();
        world.add(move |waker| client.step(waker));
        world.run_until(|world| world.clock.now() >= Instant::ZERO + Duration::from_millis(50));
        let beginning = ToyCell::connect(&world.hosts[1].shared, address(0)).expect("the endpoint is open");
        let host = world.hosts.pop().expect("there are two");
        drop(host.driver);
        let closed = Some(End::Closed(EndReason::EndpointClosed));
        assert_eq!(server.poll_end(Waker::noop()), closed, "{placement:?}");
        assert_eq!(beginning.poll_end(Waker::noop()), closed, "{placement:?}");
        assert!(host.worker.is_none_or(|worker| worker.is_over()), "{placement:?}");
        assert_eq!(host.shared.common.connection_count(), 0, "{placement:?}");
    }
}
