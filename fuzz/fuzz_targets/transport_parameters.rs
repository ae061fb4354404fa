//! The peer's transport parameters, sent by either side: what is accepted is written and read
//! again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::quic::{Side, TransportParameters};

fuzz_target!(|bytes: &[u8]| {
    for from in [Side::Client, Side::Server] {
        if let Ok(parameters) = TransportParameters::parse(bytes, from) {
            let mut out = Vec::new();
            parameters.emit(&mut out, None);
            assert_eq!(TransportParameters::parse(&out, from), Ok(parameters));
        }
    }
});
