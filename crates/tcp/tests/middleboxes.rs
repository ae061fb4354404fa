//! Segments changed by boxes on the path: cut differently, joined, stripped of options, clamped.
//! Each rule counts how often it has fired.

use std::cell::Cell;
use std::rc::Rc;

use netem::LinkConfig;
use tcp::TcpConfig;
use units::{Duration, Ecn, Ratio, Rng};
use wire::ip::Protocol;
use wire::tcp::{Flags, Header};
use wire::{checksum, ip};

use crate::support::packet::IpPacket;
use crate::support::{Pair, link};

const MINUTE: Duration = Duration::from_secs(60);

/// Number of bytes in each transfer.
const LEN: usize = 600_000;

/// A segment, to be changed.
#[derive(Clone)]
struct Segment {
    header: Header,
    data: Vec<u8>,
    ecn: Option<Ecn>,
    addresses: (std::net::IpAddr, std::net::IpAddr),
}

impl Segment {
    fn parse(packet: &IpPacket) -> Self {
        let ip = ip::Packet::parse(&packet.bytes).expect("a valid packet");
        let (header, header_len) = Header::parse(ip.payload).expect("a valid segment");
        let data = ip.payload[header_len..].to_vec();
        Self { header, data, ecn: ip.ecn, addresses: (ip.source, ip.destination) }
    }

    fn emit(&self) -> IpPacket {
        let (source, destination) = self.addresses;
        let ip = ip::Header {
            source,
            destination,
            protocol: Protocol::TCP,
            hop_limit: 9,
            dscp: 0,
            ecn: self.ecn,
            id: 0,
            may_fragment: false,
        };
        let mut bytes = Vec::new();
        ip.emit(self.header.len() + self.data.len(), &mut bytes);
        let ip_len = bytes.len();
        self.header.emit(&mut bytes);
        bytes.extend_from_slice(&self.data);
        let segment_len = (bytes.len() - ip_len) as u32;
        let pseudo = checksum::pseudo_header(source, destination, Protocol::TCP, segment_len);
        wire::tcp::fill_checksum(&mut bytes[ip_len..], pseudo);
        IpPacket::new(bytes)
    }

    fn has(&self, flag: Flags) -> bool {
        self.header.flags.contains(flag)
    }

    /// Splits off the bytes from `at` on as a separate segment; this one keeps the others.
    fn split_off(&mut self, at: usize) -> Self {
        let mut rest = self.clone();
        rest.data = self.data.split_off(at);
        rest.header.seq = self.header.seq + at as u32;
        self.header.flags = self.header.flags.without(Flags::FIN | Flags::PSH);
        rest.header.flags = rest.header.flags.without(Flags::CWR);
        rest
    }
}

/// A rule: returns the segments that replace one of host `from`.
type Rule = Box<dyn FnMut(usize, Segment) -> Vec<Segment>>;

/// Transfers data and FINs across a pair in both directions under a rule, which must fire.
fn cross(config: &LinkConfig, configs: [TcpConfig; 2], fired: &Cell<u32>, mut rule: Rule) -> Pair {
    let mut pair = Pair::with(3, [config.clone(), config.clone()], configs);
    pair.tamper =
        Some(Box::new(move |from, packet| rule(from, Segment::parse(packet)).iter().map(Segment::emit).collect()));
    pair.open();
    pair.transfer(0, LEN, MINUTE * 10);
    pair.transfer(1, LEN, MINUTE * 10);
    assert!(fired.get() > 0, "the rule has not fired");
    pair
}

fn counter() -> (Rc<Cell<u32>>, impl Fn()) {
    let count = Rc::new(Cell::new(0));
    let counter = Rc::clone(&count);
    (count, move || counter.set(counter.get() + 1))
}

fn clean() -> LinkConfig {
    LinkConfig { queue_bytes: 20_000_000, ..link(100, 5) }
}

fn lossy() -> LinkConfig {
    LinkConfig {
        loss: Ratio::new(20, 1000),
        reorder: Ratio::new(20, 1000),
        reorder_by: Duration::from_millis(4),
        ..clean()
    }
}

fn defaults() -> [TcpConfig; 2] {
    [TcpConfig::default(), TcpConfig::default()]
}

#[test]
fn segments_may_be_cut_differently_each_time() {
    for config in [clean(), lossy()] {
        let (fired, fire) = counter();
        let mut rng = Rng::from_seed(5);
        let rule: Rule = Box::new(move |_, mut segment| {
            let mut all = Vec::new();
            while segment.data.len() > 1 && rng.below(3) > 0 {
                fire();
                let rest = segment.split_off(rng.between(1, segment.data.len() as u64 - 1) as usize);
                all.push(std::mem::replace(&mut segment, rest));
            }
            all.push(segment);
            all
        });
        cross(&config, defaults(), &fired, rule);
    }
}

/// Overlapping segments have the same data; the first copy of each byte counts.
#[test]
fn pieces_may_come_again_with_other_boundaries() {
    let (fired, fire) = counter();
    let mut rng = Rng::from_seed(6);
    let mut earlier: Option<Segment> = None;
    let rule: Rule = Box::new(move |from, segment| {
        let mut all = vec![segment.clone()];
        if from == 0
            && segment.data.len() > 100
            && let Some(mut before) = earlier.replace(segment.clone())
            && before.header.seq + before.data.len() as u32 == segment.header.seq
            && rng.below(4) == 0
        {
            // The end of the previous segment and the beginning of this one, after it.
            fire();
            let mut joined = before.split_off(50);
            joined.data.extend_from_slice(&segment.data[..60]);
            joined.header.ack = segment.header.ack;
            joined.header.options = segment.header.options;
            all.push(joined);
        }
        all
    });
    cross(&lossy(), defaults(), &fired, rule);
}

#[test]
fn every_segment_may_arrive_twice_without_a_belief_in_losses() {
    let (fired, fire) = counter();
    let rule: Rule = Box::new(move |_, segment| {
        fire();
        vec![segment.clone(), segment]
    });
    let pair = cross(&clean(), defaults(), &fired, rule);
    for host in &pair.hosts {
        let stats = host.connection.as_ref().expect("it is kept").stats().send;
        assert_eq!((stats.bytes_lost, stats.timeouts), (0, 0), "{stats:?}");
    }
}

#[test]
fn options_of_syns_may_be_removed_in_one_direction() {
    // Each option, from the SYN and from its answer.
    let removals: [fn(&mut Header); 4] = [
        |header| header.options.mss = None,
        |header| header.options.window_scale = None,
        |header| header.options.sack_permitted = false,
        |header| header.options.timestamps = None,
    ];
    for (number, remove) in removals.into_iter().enumerate() {
        for host in 0..2 {
            // Without negotiated timestamps, a segment should be dropped (RFC 7323, section 3.2): a
            // box that removes them from the answer alone ends the connection.
            if (number, host) == (3, 1) {
                continue;
            }
            let (fired, fire) = counter();
            let rule: Rule = Box::new(move |from, mut segment| {
                if from == host && segment.has(Flags::SYN) {
                    fire();
                    remove(&mut segment.header);
                }
                vec![segment]
            });
            cross(&lossy(), defaults(), &fired, rule);
        }
    }
}

#[test]
fn selective_acknowledgements_may_be_removed_once_they_were_agreed_on() {
    let (fired, fire) = counter();
    let rule: Rule = Box::new(move |_, mut segment| {
        if !segment.header.options.sack.is_empty() {
            fire();
            segment.header.options.sack = Default::default();
        }
        vec![segment]
    });
    cross(&lossy(), defaults(), &fired, rule);
}

#[test]
fn the_maximum_segment_size_may_be_clamped() {
    let (fired, fire) = counter();
    let rule: Rule = Box::new(move |_, mut segment| {
        if let Some(mss) = &mut segment.header.options.mss {
            fire();
            *mss = 700;
        }
        assert!(segment.data.len() <= 700, "{}", segment.data.len());
        vec![segment]
    });
    cross(&lossy(), defaults(), &fired, rule);
}

#[test]
fn windows_may_be_clamped() {
    let (fired, fire) = counter();
    let rule: Rule = Box::new(move |_, mut segment| {
        // The scale is 7 or less for the default buffers, so it is some kilobytes.
        if !segment.has(Flags::SYN) && segment.header.window > 60 {
            fire();
            segment.header.window = 60;
        }
        vec![segment]
    });
    cross(&lossy(), defaults(), &fired, rule);
}

#[test]
fn marks_may_be_erased_or_put_on_every_packet() {
    let ecn = |mark: Option<Ecn>| {
        let (fired, fire) = counter();
        let rule: Rule = Box::new(move |_, mut segment| {
            if segment.ecn.is_some() {
                fire();
                segment.ecn = mark;
            }
            vec![segment]
        });
        let configs = defaults().map(|config| TcpConfig { ecn: true, ..config });
        cross(&clean(), configs, &fired, rule)
    };
    let pair = ecn(None);
    assert_eq!(pair.hosts[0].connection.as_ref().expect("it is kept").stats().send.marks, 0);
    let pair = ecn(Some(Ecn::Ce));
    assert!(pair.hosts[0].connection.as_ref().expect("it is kept").stats().send.marks > 0);
}

/// A link that carries frames of two bursts at a time behaves this way.
#[test]
fn neighbours_may_change_places_all_the_time() {
    let (fired, fire) = counter();
    let mut held: [Option<Segment>; 2] = [None, None];
    let rule: Rule = Box::new(move |from, segment| {
        // A lone segment must not wait for ever: only full ones are held.
        match held[from].take() {
            Some(before) => {
                fire();
                vec![segment, before]
            }
            None if segment.data.len() > 1000 && !segment.has(Flags::PSH | Flags::FIN) => {
                held[from] = Some(segment);
                Vec::new()
            }
            None => vec![segment],
        }
    });
    let pair = cross(&clean(), defaults(), &fired, rule);
    for host in &pair.hosts {
        let connection = host.connection.as_ref().expect("it is kept");
        let stats = connection.stats().send;
        assert!(connection.has_seen_reordering(), "{stats:?}");
        assert!(stats.bytes_resent < LEN as u64 / 10, "{stats:?}");
    }
}

#[test]
fn an_end_may_arrive_before_the_last_data() {
    for config in [clean(), lossy()] {
        let (fired, fire) = counter();
        let rule: Rule = Box::new(move |_, mut segment| {
            if segment.has(Flags::FIN) && segment.data.len() > 1 {
                fire();
                let rest = segment.split_off(segment.data.len() / 2);
                return vec![rest, segment];
            }
            vec![segment]
        });
        cross(&config, defaults(), &fired, rule);
    }
}
