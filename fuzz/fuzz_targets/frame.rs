//! The payload of an opened packet: every frame is read, written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::quic::{Frame, Reader};

fuzz_target!(|payload: &[u8]| {
    let mut reader = Reader::new(payload);
    while let Ok(frame) = Frame::parse(&mut reader) {
        if let Frame::Ack(ack) = frame {
            let mut above = u64::MAX;
            for range in ack.ranges() {
                assert!(range.start() <= range.end() && range.end() + 1 < above);
                above = *range.start();
            }
        }
        let mut out = Vec::with_capacity(frame.encoded_len());
        frame.emit(&mut out);
        assert_eq!(out.len(), frame.encoded_len());
        let mut again = Reader::new(&out);
        assert_eq!(Frame::parse(&mut again), Ok(frame));
        assert!(again.is_empty());
    }
});
