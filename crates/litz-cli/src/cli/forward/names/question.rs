//! Queries of a program to its name server, and the answers (RFC 1035).

use std::net::IpAddr;

use forward::address::HostName;
use forward::message::ADDRESSES_MAX;
use simple_dns::rdata::{A, AAAA, OPT, RData};
use simple_dns::{CLASS, Packet, PacketFlag, ResourceRecord};

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

/// The kind of a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    Addresses(Wanted),
    /// No host has such a name.
    NoHost,
    /// The far host does not look up such records.
    Other,
}

/// An answer without addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Code {
    NoSuchName,
    Failed,
    NotImplemented,
    Refused,
}

/// The header of a message (RFC 1035, section 4.1.1).
pub(super) const HEADER_LEN: usize = 12;

// Bits of its third and fourth byte.
const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const RECURSION_DESIRED: u8 = 0x01;
const RECURSION_AVAILABLE: u8 = 0x80;
const RESERVED: u8 = 0x40;
const CHECKING_DISABLED: u8 = 0x10;
const CODE: u8 = 0x0f;

const FORMAT_ERROR: u8 = 1;
const NAME_ERROR: u8 = 3;

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const CLASS_IN: u16 = 1;

/// The one question of a message, as bytes.
struct Question<'a> {
    name: &'a [u8],
    kind: u16,
    class: u16,
    /// The bytes after it.
    rest: &'a [u8],
}

impl<'a> Question<'a> {
    /// `None` if there is no such one. The types of records are many, so the message is not read as a whole.
    fn of(message: &'a [u8]) -> Option<Self> {
        if message.get(4..6)? != [0, 1] {
            return None;
        }
        let bytes = message.get(HEADER_LEN..)?;
        let mut end = 0;
        loop {
            match usize::from(*bytes.get(end)?) {
                0 => break,
                len @ 1..=63 => end += 1 + len,
                // The first name of a message has nothing to point to (section 4.1.4).
                _ => return None,
            }
        }
        let (name, fields) = bytes.split_at(end + 1);
        let (fields, rest) = fields.split_first_chunk::<4>()?;
        let [kind, class] = [[fields[0], fields[1]], [fields[2], fields[3]]].map(u16::from_be_bytes);
        Some(Self { name, kind, class, rest })
    }

    fn is(&self, other: &Self) -> bool {
        // The lengths of labels are no letters.
        self.name.eq_ignore_ascii_case(other.name) && (self.kind, self.class) == (other.kind, other.class)
    }
}

/// A query without the reserved bit of the header, which says nothing; `None` if it is no query.
pub(super) fn query(bytes: &[u8]) -> Option<Vec<u8>> {
    let _question = Question::of(bytes).filter(|_| bytes[2] & RESPONSE == 0)?;
    let mut query = bytes.to_vec();
    query[3] &= !RESERVED;
    Some(query)
}

/// The answer that a query cannot be read (RFC 1035, section 4.1.1): its header alone. `None` if there is no header,
/// or it is that of a reply.
pub(super) fn malformed(bytes: &[u8]) -> Option<Vec<u8>> {
    let header = bytes.first_chunk::<HEADER_LEN>().filter(|header| header[2] & RESPONSE == 0)?;
    let flags = [RESPONSE | header[2] & (OPCODE | RECURSION_DESIRED), RECURSION_AVAILABLE | FORMAT_ERROR];
    Some([&header[..2], &flags, &[0; 8]].concat())
}

/// The answer that a query is not served: there are too many. `None` if it is no query.
pub(super) fn failed(bytes: &[u8]) -> Option<Vec<u8>> {
    query(bytes).map_or_else(|| malformed(bytes), |query| answer_without(&query, Code::Failed))
}

/// The question of a query; `None` if it is malformed.
pub(super) fn asked(query: &[u8]) -> Option<Asked> {
    let question = Question::of(query).filter(|_| query[2] & RESPONSE == 0)?;
    let is_ipv6 = match question.kind {
        TYPE_A => false,
        TYPE_AAAA => true,
        _ => return Some(Asked::Other),
    };
    if question.class != CLASS_IN || query[2] & OPCODE != 0 {
        return Some(Asked::Other);
    }
    let packet = Packet::parse(query).ok()?;
    let name = HostName::new(&packet.questions.first()?.qname.to_string());
    Some(name.map_or(Asked::NoHost, |name| Asked::Addresses(Wanted { name, is_ipv6 })))
}

/// The answer to a query with those of the name's addresses that it asks for; there may be none.
pub(super) fn answer_with(query: &[u8], addresses: &[IpAddr], is_ipv6: bool) -> Option<Vec<u8>> {
    let packet = Packet::parse(query).ok()?;
    let name = packet.questions.first()?.qname.clone();
    let is_recursive = packet.has_flags(PacketFlag::RECURSION_DESIRED);
    let has_extensions = packet.opt().is_some();
    let mut packet = packet.into_reply();
    packet.name_servers.clear();
    packet.additional_records.clear();
    packet.set_flags(PacketFlag::RECURSION_AVAILABLE);
    if is_recursive {
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    // RFC 6891, section 6.1.1.
    *packet.opt_mut() =
        has_extensions.then(|| OPT { opt_codes: Vec::new(), udp_packet_size: UDP_LEN_MAX as u16, version: 0 });
    let fitting = addresses.iter().filter(|ip| ip.is_ipv6() == is_ipv6).take(ANSWERS_MAX);
    packet.answers = fitting
        .map(|ip| {
            let data = match *ip {
                IpAddr::V4(ip) => RData::A(A { address: ip.into() }),
                IpAddr::V6(ip) => RData::AAAA(AAAA { address: ip.into() }),
            };
            ResourceRecord::new(name.clone(), CLASS::IN, TTL, data)
        })
        .collect();
    packet.build_bytes_vec_compressed().ok()
}

/// The answer to a query that there are no addresses. It is made of its bytes, because the query may be for
/// records of any type.
pub(super) fn answer_without(query: &[u8], code: Code) -> Option<Vec<u8>> {
    const OPT_BEGIN: &[u8] = &[0, 0, 41];
    let code = match code {
        Code::Failed => 2,
        Code::NoSuchName => NAME_ERROR,
        Code::NotImplemented => 4,
        Code::Refused => 5,
    };
    let question = Question::of(query)?;
    let has_extensions = question.rest.starts_with(OPT_BEGIN);
    let flags =
        [RESPONSE | query[2] & (OPCODE | RECURSION_DESIRED), RECURSION_AVAILABLE | query[3] & CHECKING_DISABLED | code];
    let counts = [0, 1, 0, 0, 0, 0, 0, u8::from(has_extensions)];
    let asked = &query[HEADER_LEN..query.len() - question.rest.len()];
    let mut bytes = [&query[..2], &flags, &counts, asked].concat();
    if has_extensions {
        // RFC 6891, section 6.1.2.
        bytes.extend([OPT_BEGIN, &(UDP_LEN_MAX as u16).to_be_bytes(), &[0; 6]].concat());
    }
    Some(bytes)
}

/// Whether a reply says that the name does not exist.
pub(super) fn is_unknown(reply: &[u8]) -> bool {
    reply.get(3).is_some_and(|byte| byte & CODE == NAME_ERROR)
}

/// Whether `bytes` are the reply to this query: its number and its question, as a reply (RFC 5452,
/// section 9.1).
pub(super) fn is_reply(query: &[u8], bytes: &[u8]) -> bool {
    if bytes.len() < HEADER_LEN || query.len() < HEADER_LEN || bytes[..2] != query[..2] || bytes[2] & RESPONSE == 0 {
        return false;
    }
    // A server that could not read the query repeats no question, and one for an update need not (RFC 2136,
    // section 3.8).
    let may_be_without = bytes[3] & CODE == FORMAT_ERROR || query[2] & OPCODE != 0;
    if may_be_without && bytes[4..6] == [0, 0] {
        return true;
    }
    match (Question::of(query), Question::of(bytes)) {
        (Some(asked), Some(answered)) => asked.is(&answered),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use simple_dns::{Name, QTYPE, RCODE, TYPE};

    use super::*;

    fn query_for(name: &str, kind: TYPE, has_extensions: bool) -> Vec<u8> {
        let mut packet = Packet::new_query(7);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let kind: QTYPE = kind.into();
        let name = Name::new_unchecked(name);
        packet.questions.push(simple_dns::Question::new(name, kind, CLASS::IN.into(), false));
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
            let query = query_for("Db.Example", kind, true);
            let wanted = Wanted { name: HostName::new("db.example").expect("a name"), is_ipv6 };
            assert_eq!(asked(&query), Some(Asked::Addresses(wanted)));
            let bytes = answer_with(&query, &found, is_ipv6).expect("an answer");
            let packet = Packet::parse(&bytes).expect("an answer");
            assert_eq!((packet.id(), packet.answers.len(), packet.questions.len()), (7, count, 1));
            assert!(packet.has_flags(PacketFlag::RESPONSE | PacketFlag::RECURSION_DESIRED), "{packet:?}");
            // As the program has written it.
            assert_eq!(packet.questions[0].qname.to_string(), "Db.Example");
            assert!(packet.opt().is_some() && is_reply(&query, &bytes) && !is_unknown(&bytes));
        }
        let query = query_for("v4.example", TYPE::AAAA, false);
        let bytes = answer_with(&query, &found[..1], true).expect("an answer");
        let packet = Packet::parse(&bytes).expect("an answer");
        assert!(packet.answers.is_empty() && packet.opt().is_none() && is_reply(&query, &bytes));
    }

    #[test]
    fn the_longest_answer_fits_where_the_program_asks_by_udp() {
        let label = "a".repeat(63);
        let name = [label.as_str(); 3].join(".") + "." + &"a".repeat(61);
        let query = query_for(&name, TYPE::AAAA, true);
        let many = vec!["2001:db8::1".parse().expect("an address"); ADDRESSES_MAX];
        let bytes = answer_with(&query, &many, true).expect("an answer");
        assert!(bytes.len() <= UDP_LEN_MAX, "{}", bytes.len());
        assert_eq!(Packet::parse(&bytes).expect("an answer").answers.len(), ANSWERS_MAX);
    }

    #[test]
    fn what_is_not_looked_up_is_said() {
        assert_eq!(asked(&query_for("example.org", TYPE::MX, false)), Some(Asked::Other));
        assert_eq!(asked(&query_for("not a host", TYPE::A, false)), Some(Asked::NoHost));
        let query = query_for("a.example", TYPE::A, false);
        for (code, expected) in [
            (Code::NoSuchName, RCODE::NameError),
            (Code::Failed, RCODE::ServerFailure),
            (Code::NotImplemented, RCODE::NotImplemented),
            (Code::Refused, RCODE::Refused),
        ] {
            let bytes = answer_without(&query, code).expect("an answer");
            assert_eq!(Packet::parse(&bytes).expect("an answer").rcode(), expected);
            assert!(is_reply(&query, &bytes));
            assert_eq!(is_unknown(&bytes), code == Code::NoSuchName);
            // A reply is no query.
            assert_eq!((super::query(&bytes), asked(&bytes)), (None, None));
        }
        assert!(!is_reply(&query, &query));
    }

    #[test]
    fn queries_for_records_of_any_type_are_answered() {
        const SSHFP: u16 = 44;
        for has_extensions in [false, true] {
            let mut query = query_for("here.example", TYPE::A, has_extensions);
            let kind_at = HEADER_LEN + Question::of(&query).expect("a question").name.len();
            query[kind_at..kind_at + 2].copy_from_slice(&SSHFP.to_be_bytes());
            assert!(Packet::parse(&query).is_err(), "the types that the parser knows have no test here");
            query[3] |= RESERVED;
            let query = super::query(&query).expect("a query");
            assert_eq!((query[3] & RESERVED, asked(&query)), (0, Some(Asked::Other)));
            let bytes = answer_without(&query, Code::NotImplemented).expect("an answer");
            assert!(is_reply(&query, &bytes) && bytes[3] & CODE == 4, "{bytes:?}");
            assert_eq!(bytes.len() - Question::of(&bytes).expect("a question").rest.len(), kind_at + 4);
            assert_eq!(Question::of(&bytes).expect("a question").rest.len(), if has_extensions { 11 } else { 0 });
        }
    }

    #[test]
    fn a_reply_has_the_question_of_its_query() {
        let query = query_for("a.example", TYPE::A, false);
        let reply = |name: &str, kind| answer_without(&query_for(name, kind, false), Code::Failed).expect("an answer");
        assert!(is_reply(&query, &reply("A.Example", TYPE::A)));
        assert!(!is_reply(&query, &reply("b.example", TYPE::A)));
        assert!(!is_reply(&query, &reply("a.example", TYPE::AAAA)));
        let mut bare = reply("a.example", TYPE::A)[..HEADER_LEN].to_vec();
        bare[5] = 0;
        assert!(!is_reply(&query, &bare));
        bare[3] = FORMAT_ERROR;
        assert!(is_reply(&query, &bare));
    }

    #[test]
    fn what_is_no_query_is_answered_as_far_as_it_has_a_header() {
        let good = query_for("a.example", TYPE::A, false);
        let mut two_questions = good.clone();
        two_questions[5] = 2;
        let mut pointer = good.clone();
        pointer[HEADER_LEN] = 0xc0;
        for bytes in [&two_questions, &pointer, &good[..HEADER_LEN].to_vec(), &good[..HEADER_LEN + 3].to_vec()] {
            assert_eq!(query(bytes), None);
            let answer = malformed(bytes).expect("an answer");
            assert_eq!((answer.len(), answer[3] & CODE), (HEADER_LEN, FORMAT_ERROR));
            assert!(is_reply(&good, &answer));
            // No two servers answer each other for ever.
            assert_eq!(malformed(&answer), None);
        }
        assert_eq!(malformed(&good[..HEADER_LEN - 1]), None);
    }

    #[test]
    fn any_bytes_are_read_without_panic() {
        let query = query_for("a.example", TYPE::A, true);
        let mut random = units::Rng::from_seed(9);
        for len in 0..query.len() {
            let _any = (
                super::query(&query[..len]),
                asked(&query[..len]),
                answer_without(&query[..len], Code::Failed),
                malformed(&query[..len]),
            );
            assert!(!is_reply(&query, &query[..len]));
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
            let _any = (is_reply(&query, &bytes), is_unknown(&bytes), answer_without(&bytes, Code::Failed));
        }
    }
}
