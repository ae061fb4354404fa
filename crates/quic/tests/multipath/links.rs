//! The links that most tests here use.

use netem::{LineState, LinkConfig};
use units::{Duration, Rate};

use crate::support::{Pair, Setup};

/// A link of `mbps` with this one-way delay and a queue of 30 ms.
pub(crate) fn link(mbps: u64, delay_ms: u64) -> LinkConfig {
    link_of(mbps, Duration::from_millis(delay_ms))
}

/// As [`link`], with a finer delay.
pub(crate) fn link_of(mbps: u64, delay: Duration) -> LinkConfig {
    let rate = Rate::from_mbps(mbps);
    LinkConfig {
        rate: Some(rate),
        delay,
        queue_bytes: rate.bytes_in(Duration::from_millis(30)).max(30_000),
        ..LinkConfig::default()
    }
}

/// A connection over these links with one path each, all active.
pub(crate) fn connected(seed: u64, links: &[LinkConfig]) -> Pair {
    connected_as(Setup::new(seed).over(links).with_config(|config| config.datagram_size = 1452))
}

/// As [`connected`], with another setup.
pub(crate) fn connected_as(setup: Setup) -> Pair {
    let mut pair = setup.build();
    pair.connect();
    pair.open_paths();
    let active = pair.run_until(Duration::from_secs(10), |pair| {
        [&mut pair.client, &mut pair.server].iter_mut().all(|node| {
            let paths = node.connection(0).path_stats();
            paths.iter().filter(|path| path.state == quic::PathState::Active).count() == 1 + pair.more_links.len()
        })
    });
    let seed = pair.seed;
    assert!(active, "seed {seed}: {:?}", pair.client.connection(0).path_stats());
    pair
}

/// The directions of a link: from the client, and to it.
pub(crate) const BOTH: &[usize] = &[0, 1];

/// Changes directions of a link.
pub(crate) fn change(pair: &mut Pair, at: usize, directions: &[usize], change: impl Fn(&mut LinkConfig)) {
    let now = pair.now;
    for &direction in directions {
        let link = &mut pair.link_pair(at)[direction];
        let mut config = link.config().clone();
        change(&mut config);
        link.set_config(now, config);
    }
}

/// Changes the one-way delay of a link, both ways.
pub(crate) fn set_delay(pair: &mut Pair, at: usize, delay: Duration) {
    change(pair, at, BOTH, |config| config.delay = delay);
}

/// Cuts or restores directions of a link.
pub(crate) fn set_state(pair: &mut Pair, at: usize, directions: &[usize], state: LineState) {
    change(pair, at, directions, |config| config.state = state);
}

/// The stream data that all links together carry with packets of `size` bytes, in Mb/s.
pub(crate) fn capacity_mbps(links: &[LinkConfig]) -> f64 {
    links.iter().map(|link| link.rate.map_or(0.0, Rate::as_mbps_f64) * 1448.0 / 1514.0).sum()
}
