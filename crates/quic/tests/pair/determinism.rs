//! The same seed gives the same bytes.

use units::{Duration, Instant, Ratio};

use crate::support::{Setup, apps};

type Record = Vec<(Instant, usize, Vec<u8>)>;

fn record(seed: u64) -> Record {
    let mut pair = Setup::new(seed)
        .with_loss(10)
        .with_links(|link| {
            link.reorder = Ratio::new(10, 100);
            link.reorder_by = Duration::from_millis(3);
            link.corrupt = Ratio::new(2, 100);
        })
        .with_config(|config| config.key_update_interval = 50)
        .build();
    pair.record = Some(Vec::new());
    pair.connect();
    apps::transfer(&mut pair, 300_000, Duration::from_secs(60));
    let now = pair.now;
    pair.server.connection(0).close(now, 1, "");
    pair.run_for(Duration::from_secs(5));
    pair.record.take().expect("recording")
}

#[test]
fn two_runs_of_a_seed_send_the_same_datagrams_at_the_same_times() {
    for seed in 0..4 {
        let (first, second) = (record(seed), record(seed));
        assert!(first.len() > 300, "{} datagrams", first.len());
        let differs = first.iter().zip(&second).position(|(one, two)| one != two);
        assert_eq!((differs, first.len()), (None, second.len()), "seed {seed}");
    }
}

#[test]
fn another_seed_sends_different_datagrams() {
    let (first, second) = (record(0), record(1));
    assert_ne!(first[0].2, second[0].2, "connection IDs follow from the seed");
    assert!(first != second);
}
