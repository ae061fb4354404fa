//! Data cross links of all kinds, whole and once.

use netem::{CoDel, Discipline, LinkConfig};
use recovery::Algorithm;
use tcp::{CloseReason, Event, Nagle, State, TcpConfig};
use units::{Duration, Ratio, Rng};

use crate::support::{Pair, link};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the time of `len` bytes at the share of a link's rate that is goodput: 1448 of 1500
/// bytes.
fn ideal(len: usize, mbps: u64) -> Duration {
    Duration::from_nanos(len as u64 * 8_000 * 1500 / 1448 / mbps)
}

#[test]
fn a_transfer_fills_the_link_in_either_direction() {
    for from in 0..2 {
        for congestion in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
            let config = TcpConfig::default();
            let configs = [(); 2].map(|()| TcpConfig { congestion: Some(congestion), ..config.clone() });
            let mut pair = Pair::with(1, [link(100, 10), link(100, 10)], configs);
            pair.connect();
            let spent = pair.transfer(from, 20_000_000, MINUTE);
            let ideal = ideal(20_000_000, 100);
            assert!(spent < ideal.mul_ratio(108, 100), "{congestion}: {spent}, not {ideal}");
            let stats = pair.hosts[from].connection().stats().send;
            assert_eq!((stats.timeouts, stats.bytes_lost_spuriously), (0, 0), "{congestion}: {stats:?}");
            assert_eq!(stats.bytes_lost, pair.links[from].stats().overflowed * 1448, "{congestion}: {stats:?}");
        }
    }
}

#[test]
fn both_sides_count_the_same_marks() {
    for congestion in [Algorithm::Cubic, Algorithm::Prague] {
        let config = TcpConfig { congestion: Some(congestion), accurate_ecn: true, ..TcpConfig::default() };
        let codel = CoDel { ecn: true, interval: Duration::from_millis(20), target: Duration::from_millis(1) };
        let marking = LinkConfig { discipline: Discipline::CoDel(codel), ..link(50, 10) };
        let mut pair = Pair::with(3, [marking, link(50, 10)], [config.clone(), config]);
        pair.connect();
        let spent = pair.transfer(0, 20_000_000, MINUTE);
        pair.run_for(Duration::from_secs(1));
        let marked = pair.hosts[1].connection().stats().receive.marked;
        let stats = pair.hosts[0].connection().stats().send;
        assert!(marked >= 10, "{marked}");
        assert_eq!((stats.packets_marked, stats.timeouts), (marked, 0), "{congestion}: {stats:?}");
        assert!(spent < ideal(20_000_000, 50).mul_ratio(125, 100), "{congestion}: {spent}");
    }
}

#[test]
fn both_sides_end_in_order() {
    let mut pair = Pair::new(2, &link(10, 20));
    pair.connect();
    pair.transfer(0, 100_000, MINUTE);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.hosts[0].state(), Some(State::FinWait2));
    assert_eq!(pair.hosts[1].state(), Some(State::CloseWait));
    pair.transfer(1, 50_000, MINUTE);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.hosts[0].state(), Some(State::TimeWait));
    assert_eq!(pair.hosts[1].state(), Some(State::Closed));
    for host in &pair.hosts {
        assert_eq!(host.events.last(), Some(&Event::Closed(CloseReason::Finished)), "{:?}", host.events);
    }
    pair.run_for(MINUTE);
    assert_eq!(pair.hosts[0].state(), Some(State::Closed));
}

#[test]
fn data_cross_links_that_lose_reorder_duplicate_and_corrupt() {
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let share = |rng: &mut Rng, most: u64| Ratio::new(rng.below(most + 1), 1000);
        let config = |rng: &mut Rng| LinkConfig {
            loss: share(rng, 80),
            reorder: share(rng, 50),
            reorder_by: Duration::from_millis(rng.between(1, 30)),
            duplicate: share(rng, 30),
            corrupt: share(rng, 20),
            ..link(rng.between(2, 200), rng.between(1, 60))
        };
        let links = [config(&mut rng), config(&mut rng)];
        let configs = [(); 2].map(|()| TcpConfig {
            sack: rng.below(3) > 0,
            timestamps: rng.below(3) > 0,
            window_scaling: rng.below(3) > 0,
            ecn: rng.below(2) > 0,
            accurate_ecn: rng.below(2) > 0,
            nagle: if rng.below(2) > 0 { Nagle::Minshall } else { Nagle::Off },
            receive_buffer: rng.between(4_000, 400_000) as usize,
            send_buffer: rng.between(1_000, 400_000) as usize,
            congestion: Some([Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr][rng.below(3) as usize]),
            ..TcpConfig::default()
        });
        let text = format!("seed {seed}: {links:?} {configs:?}");
        let mut pair = Pair::with(seed, links, configs);
        pair.connect();
        let bytes = crate::support::pattern(300_000, seed);
        pair.hosts.iter_mut().for_each(|host| host.send(bytes.clone(), true));
        let is_done = pair.run_until(MINUTE * 20, |pair| pair.hosts.iter().all(|host| host.has_ended));
        assert!(is_done, "{text}\n{:?}", pair.hosts.each_ref().map(|host| host.received.len()));
        assert!(pair.hosts.iter().all(|host| host.received == bytes), "{text}");
    }
}
