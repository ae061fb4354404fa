//! Rate limits of streams and of connections: exact to the byte, fully used, and without effect on
//! other traffic.

use bytes::Bytes;
use quic::{Class, Dir, RateLimit, StreamId, WriteError};
use recovery::Algorithm;
use units::{Duration, Instant, Rate};

use crate::support::apps::{self, Reader, pattern_byte};
use crate::support::{Pair, Setup};

const CHUNK: u64 = 16 << 10;

/// Streams with unlimited data, and when their bytes arrived.
struct Flows {
    flows: Vec<Flow>,
}

struct Flow {
    id: StreamId,
    written: u64,
    reader: Option<Reader>,
    /// Bytes that arrived, by time of arrival.
    arrivals: Vec<(Instant, u64)>,
}

impl Flows {
    fn open(pair: &mut Pair, count: usize) -> Self {
        let open = |_| {
            let id = pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed");
            Flow { id, written: 0, reader: None, arrivals: Vec::new() }
        };
        Self { flows: (0..count).map(open).collect() }
    }

    fn run(&mut self, pair: &mut Pair, span: Duration) {
        pair.run_until(span, |pair| {
            self.flows.iter_mut().for_each(|flow| flow.write(pair));
            while let Some(id) = pair.server.connection(0).accept(Dir::Uni) {
                let flow = self.flows.iter_mut().find(|flow| flow.id == id).expect("no other streams are opened");
                flow.reader = Some(Reader::new(id));
            }
            self.flows.iter_mut().for_each(|flow| flow.read(pair));
            false
        });
    }

    /// All arrivals in order of time.
    fn arrivals(&self) -> Vec<(Instant, u64)> {
        let mut all: Vec<_> = self.flows.iter().flat_map(|flow| flow.arrivals.iter().copied()).collect();
        all.sort_unstable();
        all
    }
}

impl Flow {
    fn write(&mut self, pair: &mut Pair) {
        loop {
            let chunk: Bytes = (self.written..self.written + CHUNK).map(|at| pattern_byte(self.id, at)).collect();
            match pair.client.connection(0).write(self.id, chunk) {
                Ok(()) => self.written += CHUNK,
                Err(WriteError::Blocked) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn read(&mut self, pair: &mut Pair) {
        let now = pair.now;
        let Some(reader) = &mut self.reader else { return };
        let before = reader.read;
        reader.pump(now, pair.server.connection(0));
        if reader.read > before {
            self.arrivals.push((now, reader.read - before));
        }
    }

    fn bytes_between(&self, from: Instant, to: Instant) -> u64 {
        self.arrivals.iter().filter(|(at, _)| *at > from && *at <= to).map(|(_, bytes)| bytes).sum()
    }
}

fn limit(rate: Rate, burst_bytes: u64) -> Option<RateLimit> {
    Some(RateLimit::new(rate, burst_bytes).expect("neither is zero"))
}

/// A connection over a link of unlimited rate, so that bytes arrive one delay after they leave.
fn connected(seed: u64) -> Pair {
    let mut pair = Setup::new(seed).with_links(|link| (link.rate, link.queue_bytes) = (None, u64::MAX >> 1)).build();
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    pair
}

/// No interval exceeds the rate and the burst; from `from` to `to`, the rate is used to within 1 %.
fn check_limit(arrivals: &[(Instant, u64)], limit: RateLimit, from: Instant, to: Instant) {
    for (from, (began, _)) in arrivals.iter().enumerate() {
        let mut sum = 0;
        for (at, bytes) in &arrivals[from..] {
            sum += bytes;
            let allowed = limit.rate().bytes_in(*at - *began) + 1 + limit.burst_bytes();
            assert!(sum <= allowed, "{sum} bytes from {began:?} to {at:?}, {allowed} allowed by {limit:?}");
        }
    }
    let sum: u64 = arrivals.iter().filter(|(at, _)| *at > from && *at <= to).map(|(_, bytes)| bytes).sum();
    let least = limit.rate().bytes_in(to - from) * 99 / 100;
    assert!(sum >= least, "{sum} of {least} bytes and more arrived with {limit:?}");
}

#[test]
fn a_stream_keeps_to_its_rate_and_burst_and_uses_them() {
    for (seed, mbps, burst) in [(1, 5, 20_000), (2, 50, 3_000_000), (3, 100, 200_000), (4, 1, 1_200)] {
        let mut pair = connected(seed);
        let mut flows = Flows::open(&mut pair, 1);
        let limit = RateLimit::new(Rate::from_mbps(mbps), burst).expect("a limit");
        let id = flows.flows[0].id;
        pair.client.connection(0).set_stream_rate(id, Some(limit)).expect("open");
        // The window grows first.
        flows.run(&mut pair, Duration::from_secs(1));
        let from = pair.now;
        flows.run(&mut pair, Duration::from_secs(4));
        check_limit(&flows.arrivals(), limit, from, pair.now);
    }
}

#[test]
fn a_connection_keeps_to_its_rate_over_all_its_streams() {
    let mut pair = connected(5);
    let mut flows = Flows::open(&mut pair, 4);
    let limit = RateLimit::new(Rate::from_mbps(20), 50_000).expect("a limit");
    pair.client.connection(0).set_rate(Some(limit));
    let from = pair.now + Duration::from_millis(100);
    flows.run(&mut pair, Duration::from_secs(4));
    check_limit(&flows.arrivals(), limit, from, pair.now);
    let shares: Vec<u64> = flows.flows.iter().map(|flow| flow.bytes_between(Instant::ZERO, pair.now)).collect();
    let (least, most) = (shares.iter().min().expect("four"), shares.iter().max().expect("four"));
    assert!(least * 10 > most * 8, "equal streams have equal shares: {shares:?}");
}

#[test]
fn a_transfer_over_a_limited_connection_takes_its_time_from_the_first_byte_on() {
    let mut pair = Setup::new(13).build();
    pair.connect();
    let limit = RateLimit::new(Rate::from_mbps(8), 16_384).expect("a limit");
    pair.client.connection(0).set_rate(Some(limit));
    let took = apps::transfer(&mut pair, 200_000, Duration::from_secs(1));
    let least = Duration::from_micros(200_000 - 16_384);
    assert!(took >= least && took < least + Duration::from_millis(30), "{took}, {least} and more");
}

#[test]
fn a_limited_stream_leaves_the_remaining_rate_to_others_whatever_its_priority() {
    let mut pair = Setup::new(6).with_links(|link| link.rate = Some(Rate::from_mbps(50))).build();
    pair.connect();
    let mut flows = Flows::open(&mut pair, 2);
    let (urgent, other) = (flows.flows[0].id, flows.flows[1].id);
    let class = Class::default().with_priority(9).with_rate(limit(Rate::from_mbps(10), 20_000));
    pair.client.connection(0).set_class(urgent, &class).expect("open");
    pair.client.connection(0).set_stream_rate(other, None).expect("open");
    flows.run(&mut pair, Duration::from_secs(2));
    let from = pair.now;
    flows.run(&mut pair, Duration::from_secs(4));
    let mbps = |index: usize| flows.flows[index].bytes_between(from, pair.now) as f64 * 8.0 / 4e6;
    assert!((9.8..10.2).contains(&mbps(0)), "{} Mb/s", mbps(0));
    assert!(mbps(1) > 34.0, "{} Mb/s", mbps(1));
}

#[test]
fn within_the_rate_of_a_connection_higher_priorities_go_first() {
    let mut pair = connected(7);
    let mut flows = Flows::open(&mut pair, 2);
    let (low, high) = (flows.flows[0].id, flows.flows[1].id);
    let client = pair.client.connection(0);
    client.set_rate(limit(Rate::from_mbps(20), 10_000));
    client.set_class(high, &Class::of_priority(1).with_rate(limit(Rate::from_mbps(15), 10_000))).expect("open");
    client.set_class(low, &Class::default().with_rate(limit(Rate::from_mbps(15), 10_000))).expect("open");
    flows.run(&mut pair, Duration::from_secs(4));
    let mbps = |index: usize| flows.flows[index].bytes_between(Instant::ZERO, pair.now) as f64 * 8.0 / 4e6;
    assert!((14.5..15.2).contains(&mbps(1)), "{} Mb/s of the urgent one", mbps(1));
    assert!((4.5..5.5).contains(&mbps(0)), "{} Mb/s of the other one", mbps(0));
}

#[test]
fn within_the_rate_of_a_connection_small_messages_take_nothing_from_more_urgent_bulk() {
    let mut pair = connected(14);
    let mut flows = Flows::open(&mut pair, 1);
    let bulk = flows.flows[0].id;
    let client = pair.client.connection(0);
    client.set_rate(limit(Rate::from_mbps(1), 2_000));
    client.set_priority(bulk, 1).expect("open");
    let mut small = Vec::new();
    for _ in 0..2_000 {
        // More than the rate: each message fits the limit before a bulk packet does.
        let client = pair.client.connection(0);
        if small.len() < 900
            && let Some(id) = client.open(Dir::Uni)
        {
            client.write(id, vec![1; 200].into()).expect("the send buffer has space");
            client.finish(id).expect("open");
            small.push(id);
        }
        let until = pair.now + Duration::from_millis(1);
        flows.flows[0].write(&mut pair);
        pair.run_until(until - pair.now, |pair| {
            while let Some(id) = pair.server.connection(0).accept(Dir::Uni) {
                if id == bulk {
                    flows.flows[0].reader = Some(Reader::new(id));
                }
            }
            flows.flows[0].write(pair);
            flows.flows[0].read(pair);
            false
        });
    }
    let mbps = flows.flows[0].bytes_between(Instant::ZERO, pair.now) as f64 * 8.0 / 2e6;
    assert!(mbps > 0.95, "{mbps} Mb/s of 1");
    // Messages do not wait for a stream that is reset either.
    assert!(small.len() > 800);
    let client = pair.client.connection(0);
    assert_eq!(client.stats().send.streams_open, 1 + small.len(), "they wait");
    client.set_rate(limit(Rate::from_bps(800), 2_000));
    pair.run_for(Duration::from_millis(50));
    pair.client.connection(0).reset(bulk, 0).expect("open");
    pair.client.connection(0).set_rate(limit(Rate::from_mbps(10), 2_000));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.client.connection(0).stats().send.streams_open, 0);
}

#[test]
fn small_messages_do_not_wait_for_bulk_that_is_reset_or_made_less_urgent() {
    for gives_up in [true, false] {
        let mut pair = connected(15);
        let flows = Flows::open(&mut pair, 2);
        let [bulk, small] = [flows.flows[0].id, flows.flows[1].id];
        let client = pair.client.connection(0);
        // A full packet takes a hundred seconds at this rate, a small message two.
        client.set_rate(limit(Rate::from_bps(96), 1_200));
        client.set_priority(bulk, 1).expect("open");
        client.write(bulk, vec![1; 10_000].into()).expect("the send buffer has space");
        pair.run_for(Duration::from_millis(50));
        let client = pair.client.connection(0);
        client.write(small, vec![1; 24].into()).expect("the send buffer has space");
        client.finish(small).expect("open");
        pair.run_for(Duration::from_secs(3));
        assert!(pair.client.connection(0).stats().send.streams_open == 2, "it waits");
        if gives_up {
            pair.client.connection(0).reset(bulk, 0).expect("open");
        } else {
            pair.client.connection(0).set_priority(bulk, -1).expect("open");
        }
        pair.run_for(Duration::from_secs(3));
        let open = pair.client.connection(0).stats().send.streams_open;
        assert_eq!(open, usize::from(!gives_up), "the small message has arrived");
    }
}

/// Packets of the server, most of them acknowledgements, per packet of the client.
fn answers(with_background: bool) -> (u64, u64) {
    let mut pair = Setup::new(16).with_links(|link| link.rate = Some(Rate::from_mbps(50))).build();
    pair.connect();
    if with_background {
        let id = pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed");
        let client = pair.client.connection(0);
        client.set_background(id, true).expect("open");
        client.write(id, vec![1; 200].into()).expect("the send buffer has space");
        client.finish(id).expect("open");
        pair.run_until(Duration::from_secs(1), |pair| {
            while pair.server.connection(0).accept(Dir::Uni).is_some() {}
            let _all = pair.server.connection(0).read(pair.now, id, 1000);
            false
        });
        assert_eq!(pair.client.connection(0).stats().send.streams_open, 0, "the stream has ended");
    }
    let mut flows = Flows::open(&mut pair, 1);
    flows.run(&mut pair, Duration::from_millis(500));
    let before = pair.link_stats();
    flows.run(&mut pair, Duration::from_secs(1));
    let after = pair.link_stats();
    let sent = |at: usize| after[at].delivered - before[at].delivered;
    (sent(0), sent(1))
}

#[test]
fn a_finished_background_stream_costs_no_more_acknowledgements() {
    let [plain, after] = [false, true].map(answers);
    let per_thousand = |(sent, answers): (u64, u64)| answers * 1_000 / sent;
    assert!(per_thousand(after) < per_thousand(plain) * 3 / 2, "{after:?}, {plain:?} without a background");
}

#[test]
fn a_message_does_not_wait_for_rate_limited_bulk() {
    let mut pair = connected(8);
    let mut flows = Flows::open(&mut pair, 1);
    let bulk = flows.flows[0].id;
    pair.client.connection(0).set_stream_rate(bulk, limit(Rate::from_mbps(2), 4_000)).expect("open");
    flows.run(&mut pair, Duration::from_secs(1));
    for round in 0..20 {
        let id = pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed");
        let (client, sent_at) = (pair.client.connection(0), pair.now);
        client.write(id, vec![round; 200].into()).expect("the send buffer has space");
        client.finish(id).expect("open");
        let mut is_read = false;
        let arrived = pair.run_until(Duration::from_millis(100), |pair| {
            let now = pair.now;
            while pair.server.connection(0).accept(Dir::Uni).is_some() {}
            is_read |= pair.server.connection(0).read(now, id, 1000).is_ok();
            is_read
        });
        let took = pair.now - sent_at;
        assert!(arrived && took <= Duration::from_millis(10), "message {round} took {took}");
        pair.run_for(Duration::from_millis(3));
    }
}

/// The median time that messages of 200 bytes take during a stream, and that stream's rate in Mb/s,
/// over a link of 50 Mb/s and 10 ms with a queue of 100 ms.
fn messages_during_stream(is_background: bool, algorithm: Algorithm) -> (Duration, f64) {
    let setup = Setup::new(12).with_config(|config| config.congestion = algorithm);
    let mut pair =
        setup.with_links(|link| (link.rate, link.queue_bytes) = (Some(Rate::from_mbps(50)), 625_000)).build();
    pair.connect();
    let mut flows = Flows::open(&mut pair, 1);
    pair.client.connection(0).set_background(flows.flows[0].id, is_background).expect("open");
    flows.run(&mut pair, Duration::from_secs(2));
    let (from, mut took) = (pair.now, Vec::new());
    for _ in 0..100 {
        let id = pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed");
        let (client, sent_at) = (pair.client.connection(0), pair.now);
        client.set_priority(id, 1).expect("open");
        client.write(id, vec![1; 200].into()).expect("the send buffer has space");
        client.finish(id).expect("open");
        let mut arrived = false;
        pair.run_until(Duration::from_secs(1), |pair| {
            flows.flows[0].write(pair);
            flows.flows[0].read(pair);
            while pair.server.connection(0).accept(Dir::Uni).is_some() {}
            arrived |= pair.server.connection(0).read(pair.now, id, 1000).is_ok();
            arrived
        });
        assert!(arrived, "a message needs less than a second");
        took.push(pair.now - sent_at);
        flows.run(&mut pair, Duration::from_millis(7));
    }
    took.sort_unstable();
    (took[50], flows.flows[0].bytes_between(from, pair.now) as f64 * 8e3 / (pair.now - from).as_nanos() as f64)
}

#[test]
fn background_streams_fill_the_link_and_keep_the_queue_short() {
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
        let (ordinary, _) = messages_during_stream(false, algorithm);
        let (background, mbps) = messages_during_stream(true, algorithm);
        // An empty link takes 10 ms. The target queue is half a round trip, exceeded by an eighth
        // at most.
        assert!(
            background < Duration::from_millis(26),
            "{algorithm:?}: {background} in the background, {ordinary} not"
        );
        assert!(mbps > 42.0, "{algorithm:?}: {mbps} Mb/s");
        assert!(algorithm == Algorithm::Bbr || ordinary > Duration::from_millis(50), "{algorithm:?}: {ordinary}");
    }
}

#[test]
fn rate_limits_can_change_during_a_transfer() {
    let mut pair = connected(9);
    let mut flows = Flows::open(&mut pair, 1);
    let id = flows.flows[0].id;
    // The slowest limit blocks the stream for 800 s; the next limit must not wait for that.
    let slow = limit(Rate::from_bps(1_000), 100_000);
    let steps = [limit(Rate::from_mbps(10), 20_000), slow, limit(Rate::from_mbps(40), 20_000), None];
    let mut carried = Vec::new();
    for whole in [false, true] {
        for step in steps {
            let client = pair.client.connection(0);
            if whole {
                client.set_rate(step);
            } else {
                client.set_stream_rate(id, step).expect("open");
            }
            let from = pair.now;
            flows.run(&mut pair, Duration::from_secs(1));
            carried
                .push(flows.flows[0].bytes_between(from + Duration::from_millis(50), pair.now) as f64 * 8.0 / 0.95e6);
        }
    }
    for carried in carried.chunks(4) {
        assert!((9.8..10.2).contains(&carried[0]), "{carried:?} Mb/s");
        assert!(carried[1] < 1.0, "{carried:?} Mb/s");
        assert!((39.2..40.8).contains(&carried[2]), "{carried:?} Mb/s");
        assert!(carried[3] > 100.0, "{carried:?} Mb/s");
    }
}

#[test]
fn retransmissions_are_exempt_from_rate_limits() {
    let seed = 10;
    let mut pair = Setup::new(seed).with_loss(5).build();
    pair.connect();
    let mut flows = Flows::open(&mut pair, 1);
    let limit = limit(Rate::from_mbps(1), 10_000);
    pair.client.connection(0).set_stream_rate(flows.flows[0].id, limit).expect("open");
    flows.run(&mut pair, Duration::from_secs(1));
    let from = pair.now;
    flows.run(&mut pair, Duration::from_secs(10));
    assert!(pair.link_stats()[0].lost > 30, "losses did not happen: {:?}", pair.link_stats());
    let mbps = flows.flows[0].bytes_between(from, pair.now) as f64 * 8.0 / 10e6;
    // Retransmissions are exempt: the whole rate is for new bytes. In the end some wait for others
    // that were lost.
    assert!((0.96..1.04).contains(&mbps), "{mbps} Mb/s");
}

#[test]
fn limited_streams_end_and_are_reset_like_others_and_leave_no_timer_behind() {
    let mut pair = connected(11);
    let ids: Vec<StreamId> = (0..3).map(|_| pair.client.connection(0).open(Dir::Uni).expect("allowed")).collect();
    for id in &ids {
        let client = pair.client.connection(0);
        client.set_stream_rate(*id, limit(Rate::from_bps(80_000), 1_500)).expect("open");
        client.write(*id, vec![7; 3_000].into()).expect("the send buffer has space");
    }
    let client = pair.client.connection(0);
    client.finish(ids[0]).expect("open");
    pair.run_for(Duration::from_millis(50));
    pair.client.connection(0).reset(ids[1], 5).expect("open");
    pair.client.connection(0).set_stream_rate(ids[2], None).expect("open");
    pair.client.connection(0).finish(ids[2]).expect("open");
    // 1500 bytes beyond the burst take 150 ms.
    let (began, mut ended) = (pair.now, [None; 3]);
    let done = pair.run_until(Duration::from_secs(2), |pair| {
        let now = pair.now;
        while pair.server.connection(0).accept(Dir::Uni).is_some() {}
        for (id, ended) in ids.iter().zip(&mut ended) {
            while ended.is_none() {
                match pair.server.connection(0).read(now, *id, 10_000) {
                    Ok(quic::Chunk::Bytes(_)) => {}
                    Err(quic::ReadError::Blocked) => break,
                    _ => *ended = Some(now - began),
                }
            }
        }
        ended.iter().all(Option::is_some)
    });
    let [first, _, last] = ended;
    assert!(done && first > Some(Duration::from_millis(90)) && last < Some(Duration::from_millis(12)), "{ended:?}");
    pair.run_for(Duration::from_secs(5));
    let client = pair.client.connection(0);
    assert_eq!(client.stats().send.streams_open, 0);
    assert_eq!(client.set_stream_rate(ids[0], None), Err(WriteError::Closed));
    let idle = client.poll_timeout().expect("an idle timer") - pair.now;
    assert!(idle > Duration::from_secs(5), "the next timer fires after {idle}");
}

/// All plans of a connection with a bulk background stream and other application data, until none
/// is left.
fn plans_beside_background(pair: &mut Pair, ask: impl FnOnce(&mut quic::Connection)) -> Vec<(usize, bool)> {
    pair.run_for(Duration::from_secs(1));
    let now = pair.now;
    let client = pair.client.connection(0);
    let bulk = client.open(Dir::Uni).expect("a stream is allowed");
    client.set_background(bulk, true).expect("open");
    client.set_priority(bulk, -1).expect("open");
    client.write(bulk, vec![7; 8_000].into()).expect("the send buffer has space");
    assert!(!client.has_interactive_next(1 << 20), "the background is not urgent, however little it is");
    ask(client);
    let (mut plan, mut plans) = (quic::Plan::new(), Vec::new());
    while client.poll_plan(now, quic::PLAN_DATAGRAMS_MAX, &mut plan) {
        plans.push((plan.datagram_count(), plan.is_background()));
    }
    plans
}

#[test]
fn background_data_leave_in_plans_of_their_own_after_all_else() {
    let message = |client: &mut quic::Connection| {
        let id = client.open(Dir::Uni).expect("a stream is allowed");
        client.write(id, vec![1; 200].into()).expect("the send buffer has space");
        assert!(client.has_interactive_next(200) && !client.has_interactive_next(199), "as many bytes as were written");
        client.finish(id).expect("open");
    };
    let plans = plans_beside_background(&mut connected(13), message);
    assert!(plans.len() >= 2 && plans[0] == (1, false), "one packet holds the message alone: {plans:?}");
    assert!(plans[1..].iter().all(|plan| plan.1), "{plans:?}");
    assert!(plans[1..].iter().map(|plan| plan.0).sum::<usize>() >= 3, "the window allows it: {plans:?}");

    let datagram = |client: &mut quic::Connection| {
        client.send_datagram(vec![1; 100].into()).expect("it fits");
        assert!(client.has_interactive_next(100) && !client.has_interactive_next(99));
    };
    let plans = plans_beside_background(&mut connected(14), datagram);
    assert!(plans.len() >= 2 && plans[0] == (1, false) && plans[1..].iter().all(|plan| plan.1), "{plans:?}");
}

#[test]
fn background_streams_alone_fill_their_plans() {
    let plans = plans_beside_background(&mut connected(15), |_| {});
    assert!(plans[0].0 >= 4 && plans.iter().all(|plan| plan.1), "{plans:?}");
}
