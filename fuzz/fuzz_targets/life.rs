//! Whole lives of connections, whose operations the input names: every request is answered in full,
//! and nothing is left afterwards.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/quic/tests/support/mod.rs"]
mod support;

fuzz_target!(|input: &[u8]| {
    support::lives::live_by_script(input);
});
