//! A packet from a TUN device, or a frame: headers are parsed, written and parsed again. A first
//! byte selects the parser, and whether checksums are completed, which random bytes rarely have
//! right.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use wire::ip::{Header, Packet, Protocol};
use wire::{arp, checksum, ethernet, icmp, tcp, udp};

fuzz_target!(|input: &[u8]| {
    let Some((&choice, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if choice & 1 != 0 {
        complete_ipv4(&mut bytes);
    }
    match choice >> 1 & 3 {
        0 | 1 => {
            if let Ok(packet) = Packet::parse(&bytes) {
                check_packet(&packet, bytes.len());
                let mut payload = packet.payload.to_vec();
                check_payload(&packet, &mut payload, choice & 1 != 0);
            }
        }
        2 => {
            if let Ok(packet) = Packet::parse_quoted(&bytes) {
                check_packet(&packet, bytes.len());
            }
            check_frame(&bytes);
        }
        _ => {
            check_tcp(&bytes);
            check_udp(&bytes);
            check_arp(&bytes);
        }
    }
});

fn complete_ipv4(bytes: &mut [u8]) {
    let Some(first) = bytes.first() else { return };
    let len = usize::from(first & 0x0f) * 4;
    if first >> 4 == 4 && len >= 20 && len <= bytes.len() {
        checksum::fill_ipv4(&mut bytes[..len]);
    }
}

fn check_packet(packet: &Packet<'_>, len: usize) {
    assert!(packet.header_len + packet.payload.len() <= len);
    // The options and extension headers are not written.
    let header = Header {
        source: packet.source,
        destination: packet.destination,
        protocol: packet.protocol,
        hop_limit: packet.hop_limit,
        dscp: packet.dscp,
        ecn: packet.ecn,
        id: 0,
        may_fragment: packet.may_fragment,
    };
    let is_extension = packet.is_ipv6() && matches!(packet.protocol.0, 0 | 43 | 44 | 60);
    if is_extension {
        return;
    }
    let mut out = Vec::new();
    header.emit(packet.payload.len(), &mut out);
    out.extend_from_slice(packet.payload);
    let expected = Packet { header_len: header.len(), fragment: None, ..*packet };
    assert_eq!(Packet::parse(&out), Ok(expected));
}

fn check_payload(packet: &Packet<'_>, payload: &mut [u8], completes: bool) {
    let (source, destination) = (packet.source, packet.destination);
    match packet.protocol {
        Protocol::TCP => check_tcp(payload),
        Protocol::UDP => check_udp(payload),
        Protocol::ICMP | Protocol::ICMPV6 => {
            if completes && payload.len() >= 4 {
                let len = payload.len() as u32;
                let pseudo = checksum::pseudo_header(source, destination, Protocol::ICMPV6, len);
                payload[2..4].fill(0);
                let sum = !checksum::sum(payload, if packet.is_ipv6() { pseudo } else { 0 });
                payload[2..4].copy_from_slice(&sum.to_be_bytes());
            }
            check_icmp(source, destination, payload);
        }
        _ => {}
    }
}

fn check_tcp(bytes: &[u8]) {
    let Ok((header, len)) = tcp::Header::parse(bytes) else { return };
    assert!(len <= bytes.len());
    // The options may need more padding than they came with.
    if header.len() <= tcp::HEADER_LEN_MAX {
        let mut out = Vec::new();
        header.emit(&mut out);
        assert_eq!(tcp::Header::parse(&out), Ok((header, header.len())));
        tcp::fill_checksum(&mut out, 7);
        assert!(tcp::is_checksum_valid(&out, 7));
    }
}

fn check_udp(bytes: &[u8]) {
    let Ok((header, data)) = udp::Header::parse(bytes) else { return };
    let mut out = Vec::new();
    header.emit(&mut out);
    out.extend_from_slice(data);
    assert_eq!(udp::Header::parse(&out), Ok((header, data)));
    udp::fill_checksum(&mut out, 7);
    assert!(udp::is_checksum_valid(&out, 7, true));
}

/// Covers neighbor discovery, too. A quotation longer than an error may have is shortened once.
fn check_icmp(source: IpAddr, destination: IpAddr, bytes: &[u8]) {
    let Ok(message) = icmp::Message::parse(source, destination, bytes) else { return };
    let mut out = Vec::new();
    message.emit(source, destination, &mut out);
    assert_eq!(out.len(), message.len(source.is_ipv6()));
    let again = icmp::Message::parse(source, destination, &out).expect("a written message is valid");
    if !message.is_error(source.is_ipv6()) || bytes.len() <= icmp::HEADER_LEN + 500 {
        assert_eq!(again, message);
    }
    let mut third = Vec::new();
    again.emit(source, destination, &mut third);
    assert_eq!(third, out);
}

fn check_frame(bytes: &[u8]) {
    let Ok((header, payload)) = ethernet::Header::parse(bytes) else { return };
    let mut out = Vec::new();
    header.emit(&mut out);
    out.extend_from_slice(payload);
    assert_eq!(out, bytes);
    check_arp(payload);
}

fn check_arp(bytes: &[u8]) {
    let Ok(packet) = arp::Packet::parse(bytes) else { return };
    let mut out = Vec::new();
    packet.emit(&mut out);
    assert_eq!(out, bytes[..arp::PACKET_LEN]);
}
