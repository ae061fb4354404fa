//! What the fuzz targets do, for a fixed number of inputs from seeds, and for inputs that once failed.

use crate::support::injection::{datagrams_into_live_pair, payloads_into_connection, random_input};

#[test]
fn strangers_datagrams_do_not_impress_a_live_pair() {
    for seed in 0..150 {
        datagrams_into_live_pair(&random_input(seed, 1500));
    }
}

#[test]
fn whatever_a_peer_seals_ends_a_connection_or_does_not() {
    for seed in 0..3000 {
        payloads_into_connection(&random_input(seed, 600));
    }
}
