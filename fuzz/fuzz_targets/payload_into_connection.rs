//! Payloads sealed by a peer: the connection closes or continues, within its bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/quic/tests/support/mod.rs"]
mod support;

fuzz_target!(|input: &[u8]| support::injection::payloads_into_connection(input));
