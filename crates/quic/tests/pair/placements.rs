//! Stages on other processors: batches that never return, and batches that return after a key
//! update.
//!
//! `random_operations/lockstep.rs` proves that placements never change the wire bytes.

use bytes::BytesMut;
use netem::LinkConfig;
use quic::{Addresses, Connection, Dir, OpenJob, Plan, ReceiveReport, seal};
use units::{Duration, Instant, Rate, Ratio, Rng};

use crate::support::stages::{By, Staging, WorkerPool, shuffle};
use crate::support::{CLIENT, SERVER, Setup, apps};

#[test]
fn a_failed_worker_loses_its_batch_and_nothing_else() {
    let pool = WorkerPool::start(2);
    for seed in 0..12 {
        let link = LinkConfig { delay: Duration::from_millis(8), ..LinkConfig::default() };
        let slow = LinkConfig { delay: Duration::from_millis(30), rate: Some(Rate::from_mbps(20)), ..link.clone() };
        let mut setup = Setup::new(seed).over(&[link, slow]).with_config(|config| config.key_update_interval = 150);
        setup.staging = Staging {
            by: By::Workers(pool.clone()),
            gathers: true,
            together: true,
            turn: Duration::from_micros(200),
            lose: Ratio::new(4 + seed % 4 * 3, 100),
            ..Staging::default()
        };
        let mut pair = setup.build();
        pair.connect();
        pair.open_paths();
        apps::transfer(&mut pair, 3_000_000, Duration::from_secs(300));
        let stats = [&mut pair.client, &mut pair.server].map(|node| node.connection(0).stats());
        for (node, stats) in [&pair.client, &pair.server].into_iter().zip(&stats) {
            assert!(node.stages.done.lost > 0, "seed {seed}: {:?}", node.stages.done);
            let receive = &stats.receive;
            assert_eq!((receive.packets_unauthentic, receive.packets_dropped), (0, 0), "seed {seed}");
        }
        assert!(stats[0].send.packets_lost > 0 && stats[0].send.key_updates > 0, "seed {seed}: {:?}", stats[0].send);
    }
}

#[test]
fn late_batches_open_while_both_sides_update_their_keys() {
    let mut stale = 0;
    for seed in 0..6 {
        let mut setup = Setup::new(seed)
            .with_links(|link| {
                // At a low rate, since an update has to wait for three probe timeouts after the one
                // before.
                link.rate = Some(Rate::from_mbps(20));
                link.reorder = Ratio::new(20, 100);
                link.reorder_by = Duration::from_millis(5);
            })
            .with_config(|config| config.key_update_interval = 60);
        setup.staging = Staging { by: By::Steps, hold: Duration::from_millis(4), ..Staging::default() };
        let mut pair = setup.build();
        pair.connect();
        apps::transfer(&mut pair, 3_000_000, Duration::from_secs(60));
        for node in [&mut pair.client, &mut pair.server] {
            let stats = node.connection(0).stats();
            assert!(stats.send.key_updates >= 2, "seed {seed}: {} updates", stats.send.key_updates);
            let receive = &stats.receive;
            assert_eq!((receive.packets_unauthentic, receive.packets_dropped), (0, 0), "seed {seed}");
            stale += node.stages.done.stale;
        }
    }
    assert!(stale > 100, "{stale} batches were absorbed after a key update");
}

/// A datagram, and the number of key updates its sender had made when it was sealed.
type Sealed = (u64, Vec<u8>);

/// Datagrams that a side sends in one round. Late ones are late by one round, and none by the 128
/// packets after which a one-byte packet number is ambiguous (RFC 9000, appendix A.3).
const ROUND_MAX: usize = 40;

/// The datagrams that a connection can send now.
fn emit(connection: &mut Connection, now: Instant) -> Vec<Sealed> {
    let (mut plan, mut bytes, mut sealed) = (Plan::new(), Vec::new(), Vec::new());
    if connection.poll_timeout().is_some_and(|at| at <= now) {
        connection.handle_timeout(now);
    }
    while sealed.len() < ROUND_MAX {
        let phase = connection.stats().send.key_updates;
        // One at a time, since the next may be of the next phase.
        if !connection.poll_plan(now, 1, &mut plan) {
            break;
        }
        seal(&plan, &mut bytes);
        connection.handle_emitted(now, &plan.receipt());
        sealed.push((phase, bytes.clone()));
    }
    sealed
}

/// A batch in progress at the server, the phase it was sealed in, and the server's phase when it
/// was begun.
struct BatchInProgress {
    job: OpenJob,
    data: BytesMut,
    sealed_in: u64,
    begun_in: u64,
}

/// Begins all of `arrived`, opens them in any order, and absorbs them in order of arrival. Returns
/// how many packets of the previous and of the new phase were begun before the update and absorbed
/// after it.
fn take_in(server: &mut Connection, now: Instant, rng: &mut Rng, arrived: Vec<Sealed>) -> (u64, u64) {
    let mut batches: Vec<BatchInProgress> = Vec::new();
    for (sealed_in, datagram) in arrived {
        let mut job = OpenJob::default();
        let (data, begun_in) = (BytesMut::from(&datagram[..]), server.stats().send.key_updates);
        assert!(server.begin_open(now, Addresses::of(CLIENT), &data, data.len(), &mut job));
        batches.push(BatchInProgress { job, data, sealed_in, begun_in });
    }
    let mut order: Vec<usize> = (0..batches.len()).collect();
    shuffle(rng, &mut order);
    for at in order {
        let BatchInProgress { job, data, .. } = &mut batches[at];
        job.open(data);
    }
    let (mut before, mut after) = (0, 0);
    for BatchInProgress { mut job, data, sealed_in, begun_in } in batches {
        // The server follows an update when it absorbs the first packet of a phase, never by
        // itself.
        let is_stale = server.stats().send.key_updates > begun_in;
        before += u64::from(is_stale && sealed_in == begun_in);
        after += u64::from(is_stale && sealed_in > begun_in);
        server.handle_opened(now, &mut job, &data.freeze());
    }
    (before, after)
}

#[test]
fn packets_of_both_phases_open_that_were_begun_before_a_key_update_and_absorbed_after_it() {
    const TOTAL: u64 = 3_000_000;
    for seed in 0..8 {
        let mut setup = Setup::new(seed);
        setup.client.key_update_interval = 80;
        let mut pair = setup.build();
        pair.connect();
        let mut rng = Rng::from_seed(seed).split("order of arrival");
        let id = pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed");
        let (mut writer, mut reader) = (apps::Writer::new(id, TOTAL), apps::Reader::new(id));
        let received_before = pair.server.connection(0).stats().receive.packets_received;
        let (mut late, mut delivered, mut stale) = (Vec::<Sealed>::new(), 0, (0, 0));
        for _ in 0..1000 {
            pair.now += Duration::from_millis(10);
            let now = pair.now;
            let (client, server) = (pair.client.connection(0), pair.server.connection(0));
            writer.pump(client);
            // Every other datagram is overtaken by those of the next round.
            let (mut arrived, mut held) = (std::mem::take(&mut late), Vec::new());
            for (index, sealed) in emit(client, now).into_iter().enumerate() {
                if index % 2 == 0 { arrived.push(sealed) } else { held.push(sealed) }
            }
            late = held;
            shuffle(&mut rng, &mut arrived);
            delivered += arrived.len() as u64;
            let (before, after) = take_in(server, now, &mut rng, arrived);
            stale = (stale.0 + before, stale.1 + after);
            reader.pump_if_known(now, server);
            for (_, datagram) in emit(server, now) {
                let len = datagram.len();
                client.handle_datagrams(now, Addresses::of(SERVER), BytesMut::from(&datagram[..]), len);
            }
            if reader.ended {
                break;
            }
        }
        let updates = [&mut pair.client, &mut pair.server].map(|node| node.connection(0).stats().send.key_updates);
        let receive = pair.server.connection(0).stats().receive;
        assert!(reader.ended, "seed {seed}: {} of {TOTAL} bytes, {updates:?}, {receive:?}", reader.read);
        assert_eq!((receive.packets_unauthentic, receive.packets_dropped), (0, 0), "seed {seed}");
        // Packets whose numbers are below those still tracked count as duplicates (RFC 9000,
        // section 13.2.3).
        let opened = receive.packets_received - received_before + receive.packets_duplicate;
        assert_eq!(opened, delivered, "seed {seed}: every one opened: {receive:?}");
        assert!(updates[0] >= 5 && updates[0].abs_diff(updates[1]) <= 1, "seed {seed}: {updates:?}");
        assert!(stale.0 >= 20 && stale.1 >= 20, "seed {seed}: {stale:?} of the phase before and of the new one");
    }
}

#[test]
fn an_empty_receive_report_restores_no_older_state() {
    let mut pair = Setup::new(3).build();
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    let now = pair.now;
    let (client, server) = (pair.client.connection(0), pair.server.connection(0));
    let id = client.open(Dir::Uni).expect("a stream is allowed");
    client.write(id, vec![5; 8_000].into()).expect("the send buffer has space");
    let mut part = server.detach().expect("the handshake is confirmed");
    let (mut first, mut second) = (ReceiveReport::default(), ReceiveReport::default());
    let sent = emit(client, now);
    assert!(sent.len() > 3, "{} datagrams", sent.len());
    for (index, (_, datagram)) in sent.into_iter().enumerate() {
        let len = datagram.len();
        part.handle_datagrams(now, Addresses::of(CLIENT), BytesMut::from(&datagram[..]), len).expect("a known path");
        let report = if index == 0 { &mut first } else { &mut second };
        assert!(part.poll_report(report));
        server.handle_report(now, report);
    }
    assert!(!part.poll_report(&mut first), "nothing is left to report");
    server.handle_report(now, &mut first);
    let now = now + Duration::from_secs(1);
    for (_, datagram) in emit(server, now) {
        let len = datagram.len();
        client.handle_datagrams(now, Addresses::of(SERVER), BytesMut::from(&datagram[..]), len);
    }
    assert_eq!(client.stats().in_flight_bytes, 0, "all of it was acknowledged");
    server.attach(now, part);
}

#[test]
fn a_report_becomes_urgent_when_the_acknowledgement_delay_has_passed() {
    let mut pair = Setup::new(4).build();
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    let now = pair.now;
    let (client, server) = (pair.client.connection(0), pair.server.connection(0));
    let id = client.open(Dir::Uni).expect("a stream is allowed");
    client.write(id, vec![5; 100].into()).expect("the send buffer has space");
    let mut part = server.detach().expect("the handshake is confirmed");
    for (_, datagram) in emit(client, now) {
        let len = datagram.len();
        part.handle_datagrams(now, Addresses::of(CLIENT), BytesMut::from(&datagram[..]), len).expect("a known path");
    }
    let max_ack_delay = Duration::from_millis(25);
    let due_at = now + max_ack_delay;
    assert!(!part.is_urgent(now + max_ack_delay / 2) && part.is_urgent(due_at));
    let mut report = ReceiveReport::default();
    assert!(part.poll_report(&mut report));
    server.handle_report(due_at, &mut report);
    server.handle_timeout(due_at);
    for (_, datagram) in emit(server, due_at) {
        let len = datagram.len();
        client.handle_datagrams(due_at, Addresses::of(SERVER), BytesMut::from(&datagram[..]), len);
    }
    assert_eq!(client.stats().in_flight_bytes, 0, "the packet was acknowledged");
    server.attach(due_at, part);
}
