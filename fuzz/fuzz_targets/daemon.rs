//! Messages between the daemon and programs: what is accepted is written and read again, and has one
//! encoding but for texts, which are cleaned.
#![no_main]

use forward::daemon::{MESSAGE_LEN_MAX, REQUEST_LEN_MAX, Reply, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(request) = Request::decode(input) {
        let again = request.encode();
        assert!(again.len() <= REQUEST_LEN_MAX);
        assert_eq!(Request::decode(&again).expect("what was read can be written"), request);
        let is_text = matches!(request, Request::Hello { .. } | Request::Decline { .. });
        assert!(is_text || again == input, "another encoding: {request:?}");
    }
    if let Ok(reply) = Reply::decode(input) {
        let again = reply.encode();
        assert!(again.len() <= MESSAGE_LEN_MAX);
        assert_eq!(Reply::decode(&again).expect("what was read can be written"), reply);
    }
});
