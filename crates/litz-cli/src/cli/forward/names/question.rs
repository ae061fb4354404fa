//! What a program asks its name server, and the answers (RFC 1035).

use std::net::IpAddr;

use forward::address::HostName;
use forward::message::ADDRESSES_MAX;
use simple_dns::rdata::{A, AAAA, OPT, RData};
use simple_dns::{CLASS, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};

/// Programs may not keep the addresses: the far host keeps them as long as it may.
const TTL: u32 = 0;

/// The longest answer by UDP that a program has to take (RFC 1035, section 2.3.4).
const UDP_LEN_MAX: usize = 512;

// An answer by UDP is never cut: a header, a question with the longest name, and one pointer, fixed fields and
// address a record (RFC 1035, sections 4.1 and 4.1.4), and that for extensions (RFC 6891, section 6.1.2).
const _: () = assert!(12 + 255 + 4 + ANSWERS_MAX * (2 + 10 + 16) + 11 <= UDP_LEN_MAX);

/// Addresses in an answer. The far host names up to [`ADDRESSES_MAX`] of both families.
const ANSWERS_MAX: usize = 8;
const _: () = assert!(ANSWERS_MAX <= ADDRESSES_MAX);

/// Which addresses of which name are asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    pub(super) name: HostName,
    pub(super) is_ipv6: bool,
}

/// What becomes of a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    Addresses(Wanted),
    /// No host has such a name.
    NoHost,
    /// The far host does not look up such records.
    Other,
}

/// What the answer is, besides addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Code {
    NoSuchName,
    Failed,
    NotImplemented,
    Refused,
}

/// What a query asks for; `None` if it is none.
pub(super) fn asked(query: &[u8]) -> Option<Asked> {
    let packet = Packet::parse(query).ok().filter(|packet| !packet.has_flags(PacketFlag::RESPONSE))?;
    let [question] = &packet.questions[..] else { return None };
    let is_ipv6 = match question.qtype {
        QTYPE::TYPE(TYPE::A) => false,
        QTYPE::TYPE(TYPE::AAAA) => true,
        _ => return Some(Asked::Other),
    };
    let name = HostName::new(&question.qname.to_string());
    Some(name.map_or(Asked::NoHost, |name| Asked::Addresses(Wanted { name, is_ipv6 })))
}

/// The answer to a query with those of the name's addresses that it asks for; there may be none.
pub(super) fn answer_with(query: &[u8], addresses: &[IpAddr], is_ipv6: bool) -> Option<Vec<u8>> {
    let fitting = addresses.iter().filter(|ip| ip.is_ipv6() == is_ipv6).take(ANSWERS_MAX);
    answer(query, |packet| {
        let name = packet.questions[0].qname.clone();
        packet.answers = fitting
            .map(|ip| {
                let data = match *ip {
                    IpAddr::V4(ip) => RData::A(A { address: ip.into() }),
                    IpAddr::V6(ip) => RData::AAAA(AAAA { address: ip.into() }),
                };
                ResourceRecord::new(name.clone(), CLASS::IN, TTL, data)
            })
            .collect();
    })
}

/// The answer to a query that there are no addresses.
pub(super) fn answer_without(query: &[u8], code: Code) -> Option<Vec<u8>> {
    answer(query, |packet| {
        *packet.rcode_mut() = match code {
            Code::NoSuchName => RCODE::NameError,
            Code::Failed => RCODE::ServerFailure,
            Code::NotImplemented => RCODE::NotImplemented,
            Code::Refused => RCODE::Refused,
        };
    })
}

fn answer<'a>(query: &'a [u8], fill: impl FnOnce(&mut Packet<'a>)) -> Option<Vec<u8>> {
    let packet = Packet::parse(query).ok()?;
    let is_recursive = packet.has_flags(PacketFlag::RECURSION_DESIRED);
    let has_extensions = packet.opt().is_some();
    let mut packet = packet.into_reply();
    packet.answers.clear();
    packet.name_servers.clear();
    packet.additional_records.clear();
    packet.set_flags(PacketFlag::RECURSION_AVAILABLE);
    if is_recursive {
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    // RFC 6891, section 6.1.1.
    *packet.opt_mut() =
        has_extensions.then(|| OPT { opt_codes: Vec::new(), udp_packet_size: UDP_LEN_MAX as u16, version: 0 });
    fill(&mut packet);
    packet.build_bytes_vec_compressed().ok()
}

/// Whether `bytes` answer this query, and the name exists.
pub(super) fn is_known(query: &[u8], bytes: &[u8]) -> bool {
    is_reply(query, bytes) && Packet::parse(bytes).is_ok_and(|packet| packet.rcode() == RCODE::NoError)
}

/// Whether `bytes` are the reply to this query: its number, as a reply.
pub(super) fn is_reply(query: &[u8], bytes: &[u8]) -> bool {
    const RESPONSE: u8 = 0x80;
    bytes.len() >= 12 && query.len() >= 12 && bytes[..2] == query[..2] && bytes[2] & RESPONSE != 0
}

#[cfg(test)]
mod tests {
    use simple_dns::{Name, Question};

    use super::*;

    fn query(name: &str, kind: TYPE, has_extensions: bool) -> Vec<u8> {
        let mut packet = Packet::new_query(7);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        packet.questions.push(Question::new(Name::new_unchecked(name), kind.into(), CLASS::IN.into(), false));
        *packet.opt_mut() = has_extensions.then(|| OPT { opt_codes: Vec::new(), udp_packet_size: 1232, version: 0 });
        packet.build_bytes_vec().expect("a query")
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn addresses_of_the_family_that_is_asked_for_are_answered() {
        let found = ips(&["192.0.2.1", "2001:db8::1", "192.0.2.2"]);
        for (kind, is_ipv6, count) in [(TYPE::A, false, 2), (TYPE::AAAA, true, 1)] {
            let query = query("Db.Example", kind, true);
            let wanted = Wanted { name: HostName::new("db.example").expect("a name"), is_ipv6 };
            assert_eq!(asked(&query), Some(Asked::Addresses(wanted)));
            let bytes = answer_with(&query, &found, is_ipv6).expect("an answer");
            let packet = Packet::parse(&bytes).expect("an answer");
            assert_eq!((packet.id(), packet.answers.len(), packet.questions.len()), (7, count, 1));
            assert!(packet.has_flags(PacketFlag::RESPONSE | PacketFlag::RECURSION_DESIRED), "{packet:?}");
            // As the program has written it.
            assert_eq!(packet.questions[0].qname.to_string(), "Db.Example");
            assert!(packet.opt().is_some() && is_known(&query, &bytes));
        }
        let query = query("v4.example", TYPE::AAAA, false);
        let bytes = answer_with(&query, &found[..1], true).expect("an answer");
        let packet = Packet::parse(&bytes).expect("an answer");
        assert!(packet.answers.is_empty() && packet.opt().is_none() && is_known(&query, &bytes));
    }

    #[test]
    fn the_longest_answer_fits_where_the_program_asks_by_udp() {
        let label = "a".repeat(63);
        let name = [label.as_str(); 3].join(".") + "." + &"a".repeat(61);
        let query = query(&name, TYPE::AAAA, true);
        let many = vec!["2001:db8::1".parse().expect("an address"); ADDRESSES_MAX];
        let bytes = answer_with(&query, &many, true).expect("an answer");
        assert!(bytes.len() <= UDP_LEN_MAX, "{}", bytes.len());
        assert_eq!(Packet::parse(&bytes).expect("an answer").answers.len(), ANSWERS_MAX);
    }

    #[test]
    fn what_is_not_looked_up_is_said() {
        assert_eq!(asked(&query("example.org", TYPE::MX, false)), Some(Asked::Other));
        assert_eq!(asked(&query("not a host", TYPE::A, false)), Some(Asked::NoHost));
        let query = query("a.example", TYPE::A, false);
        for (code, expected) in [
            (Code::NoSuchName, RCODE::NameError),
            (Code::Failed, RCODE::ServerFailure),
            (Code::NotImplemented, RCODE::NotImplemented),
            (Code::Refused, RCODE::Refused),
        ] {
            let bytes = answer_without(&query, code).expect("an answer");
            assert_eq!(Packet::parse(&bytes).expect("an answer").rcode(), expected);
            assert!(is_reply(&query, &bytes) && !is_known(&query, &bytes));
            // A reply is no query.
            assert_eq!(asked(&bytes), None);
        }
        assert!(!is_reply(&query, &query));
    }

    #[test]
    fn any_bytes_are_read_without_panic() {
        let query = query("a.example", TYPE::A, true);
        let mut random = units::Rng::from_seed(9);
        for len in 0..query.len() {
            let _any = (asked(&query[..len]), answer_without(&query[..len], Code::Failed));
            assert!(!is_known(&query, &query[..len]));
        }
        for _ in 0..20_000 {
            let mut bytes = query.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            if let Some(Asked::Addresses(wanted)) = asked(&bytes) {
                let _any = answer_with(&bytes, &ips(&["192.0.2.1"]), wanted.is_ipv6);
            }
            let _any = (is_known(&query, &bytes), answer_without(&bytes, Code::Failed));
        }
    }
}
