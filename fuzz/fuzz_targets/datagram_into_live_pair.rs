//! Unauthenticated datagrams, generated or recorded and modified, on the links of a live pair: the
//! pair stays up.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/quic/tests/support/mod.rs"]
mod support;

fuzz_target!(|input: &[u8]| support::injection::datagrams_into_live_pair(input));
