//! The fuzz targets' checks, for a fixed number of seeded inputs.

use crate::support::injection::{datagrams_into_live_pair, payloads_into_connection, random_input};

#[test]
fn unauthenticated_datagrams_do_not_disturb_a_live_pair() {
    for seed in 0..300 {
        datagrams_into_live_pair(&random_input(seed, 1500));
    }
}

#[test]
fn any_sealed_payload_closes_the_connection_or_leaves_it_alive() {
    for seed in 0..20_000 {
        payloads_into_connection(&random_input(seed, 600));
    }
}

/// `LITZ_CORPUS=fuzz/corpus cargo test -p litz-quic --test all -- --ignored write_seed_corpora`
/// writes a seed corpus for each target: the datagrams of a real pair, and the inputs of the tests
/// above.
#[test]
#[ignore = "writes files"]
fn write_seed_corpora() {
    let root = std::env::var_os("LITZ_CORPUS").expect("LITZ_CORPUS names a folder");
    // Tests run in the crate's folder; the path is relative to the repository's.
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
        // The first input byte of the `packet` target is the length of our connection IDs.
        write("packet", index, &[&[8], &datagram[..]].concat());
    }
    for index in 0..40 {
        write("datagram_into_live_pair", index, &random_input(index as u64, 400));
        write("payload_into_connection", index, &random_input(index as u64, 400));
    }
}
