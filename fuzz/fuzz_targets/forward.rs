//! Messages of the forwarding protocol, its packets, SOCKS5, and the texts of forwards and rules: what
//! is accepted is written and read again, and stays inside its bounds.
#![no_main]

use forward::message::{HEADER_LEN, Header, Message};
use forward::policy::{Policy, TargetRule};
use forward::spec::Forward;
use forward::{packet, socks};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((kind, input)) = input.split_first() else { return };
    match kind % 4 {
        0 => message(input),
        1 => {
            if let Some((flow, at)) = packet::decode(input) {
                let again = packet::encode(flow, &input[at..]);
                let (same, at_again) = packet::decode(&again).expect("a packet that was read can be written");
                assert_eq!((same, &again[at_again..]), (flow, &input[at..]));
            }
        }
        2 => socks5(input),
        _ => texts(&String::from_utf8_lossy(input)),
    }
});

fn message(input: &[u8]) {
    let Some((header, body)) = input.split_first_chunk::<HEADER_LEN>() else { return };
    let Ok(parsed) = Header::parse(*header) else { return };
    let Some(body) = body.get(..parsed.body_len) else { return };
    if let Ok(message) = Message::decode(parsed, body) {
        let mut again = Vec::new();
        message.encode(&mut again);
        let (header, body) = again.split_first_chunk::<HEADER_LEN>().expect("a whole message");
        let header = Header::parse(*header).expect("a message that was read can be written");
        assert_eq!(Message::decode(header, body).expect("and read again"), message);
    }
}

fn socks5(input: &[u8]) {
    if let Ok(Some((_, len))) = socks::parse_greeting(input) {
        assert!(len <= input.len() && len <= socks::MESSAGE_LEN_MAX);
    }
    if let Ok(Some((_, len))) = socks::parse_request(input) {
        assert!(len <= input.len() && len <= socks::MESSAGE_LEN_MAX);
    }
    if let Ok((target, at)) = socks::parse_udp(input) {
        let mut again = Vec::new();
        socks::put_udp_header(&target, &mut again);
        assert!(at <= socks::UDP_HEADER_LEN_MAX);
        assert_eq!(socks::parse_udp(&again), Ok((target, again.len())));
    }
}

fn texts(text: &str) {
    let (forward, rule) = text.split_once('\n').unwrap_or((text, text));
    let forward = forward.parse::<Forward>();
    if let Ok(rule) = rule.parse::<TargetRule>() {
        let policy = Policy::new(vec![rule], Vec::new());
        if let Ok(forward) = forward {
            let _verdict = policy.verdict(&forward.target);
            assert!(!policy.allows_listening(&forward.listen), "no rule is for listeners");
        }
    }
}
