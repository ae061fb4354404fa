//! What the fuzz targets do, for a fixed number of inputs from seeds.

use crate::support::injection::{datagrams_into_live_pair, payloads_into_connection, random_input};

#[test]
fn strangers_datagrams_do_not_impress_a_live_pair() {
    for seed in 0..300 {
        datagrams_into_live_pair(&random_input(seed, 1500));
    }
}

#[test]
fn whatever_a_peer_seals_ends_a_connection_or_does_not() {
    for seed in 0..20_000 {
        payloads_into_connection(&random_input(seed, 600));
    }
}

/// `LITZ_CORPUS=fuzz/corpus cargo test -p litz-quic --test hostile -- --ignored write_seed_corpora` gives each target a
/// start: what a real pair says, and the inputs of the tests above.
#[test]
#[ignore = "writes files"]
fn write_seed_corpora() {
    let root = std::env::var_os("LITZ_CORPUS").expect("LITZ_CORPUS names a folder");
    // Tests run in their crate's folder; the path is meant from the repository's.
    let root = std::path::Path::new("../..").join(root);
    let mut pair = crate::support::Setup::new(1).with_loss(5).build();
    pair.record = Some(Vec::new());
    pair.connect();
    crate::support::apps::transfer(&mut pair, 100_000, units::Duration::from_secs(10));
    let write = |target: &str, index: usize, bytes: &[u8]| {
        let folder = root.join(target);
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        std::fs::write(folder.join(format!("seed-{index:03}")), bytes).expect("the file can be written");
    };
    let record = pair.record.take().expect("recording");
    for (index, (.., datagram)) in record.iter().enumerate().step_by(3).take(60) {
        // The `packet` target takes the length of our connection IDs from the first byte.
        write("packet", index, &[&[8], &datagram[..]].concat());
    }
    for index in 0..40 {
        write("datagram_into_live_pair", index, &random_input(index as u64, 400));
        write("payload_into_connection", index, &random_input(index as u64, 400));
    }
}
