//! Names are looked up through the tunnel, by the servers that the far end has named (RFC 1035).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use forward::message::{Failure, Reason};
use litz::tcp::{TcpStack, UdpPort};
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, TYPE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// The port of name servers.
const PORT: u16 = 53;

/// The time that a server has to answer, before the next one is asked.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// How often each server is asked.
const ROUNDS: usize = 2;

/// The ports that a query may come from (RFC 6335, section 6), drawn at random (RFC 5452, section 9.2).
const PORTS: std::ops::RangeInclusive<u16> = 49_152..=u16::MAX;

/// How many ports are tried if those drawn are in use.
const PORTS_TRIED: usize = 8;

/// What a server says about a name.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// These are its addresses of the wanted kind; there may be none.
    Addresses(Vec<IpAddr>),
    NoSuchName,
    /// The server cannot say.
    Failed,
    /// The whole answer needs TCP.
    Truncated,
}

/// The addresses of `name`, IPv6 first.
///
/// # Errors
/// If no server knows it, or answers. The text is for the user.
pub(super) async fn look_up(stack: &TcpStack, servers: &[IpAddr], name: &str) -> Result<Vec<IpAddr>, Failure> {
    let failed = |why: &str| Failure::new(Reason::NameNotFound, &format!("cannot look up {name}: {why}"));
    let both = tokio::join!(ask(stack, servers, name, TYPE::AAAA), ask(stack, servers, name, TYPE::A));
    let mut found = Vec::new();
    let answers = [both.0, both.1].map(|answer| answer.map_err(|why| failed(&why)));
    let is_answered = answers.iter().any(Result::is_ok);
    for answer in answers {
        match answer {
            Ok(Answer::Addresses(addresses)) => found.extend(addresses),
            // A server without answers of one kind has failed for that kind only.
            Err(_) if is_answered => {}
            Err(failure) => return Err(failure),
            Ok(_) => {}
        }
    }
    if found.is_empty() { Err(failed("no name server of the tunnel knows it")) } else { Ok(found) }
}

/// Asks the servers, one after the other, until one knows.
async fn ask(stack: &TcpStack, servers: &[IpAddr], name: &str, kind: TYPE) -> Result<Answer, String> {
    for server in servers.iter().cycle().take(servers.len() * ROUNDS) {
        let server = SocketAddr::new(*server, PORT);
        let mut random = [0; 4];
        net::os_random(&mut random).map_err(|error| error.to_string())?;
        let id = u16::from_be_bytes([random[0], random[1]]);
        let query = query(id, name, kind).ok_or("it is no valid name")?;
        let answer = match timeout(ANSWER_TIME, ask_by_udp(stack, server, &query)).await {
            Ok(Some(Answer::Truncated)) => timeout(ANSWER_TIME, ask_by_tcp(stack, server, &query)).await,
            answer => answer,
        };
        if let Ok(Some(known @ (Answer::Addresses(_) | Answer::NoSuchName))) = answer {
            return Ok(known);
        }
    }
    Err("no name server of the tunnel has answered".to_owned())
}

async fn ask_by_udp(stack: &TcpStack, server: SocketAddr, query: &[u8]) -> Option<Answer> {
    let port = bind(stack)?;
    port.send_to(query, server).ok()?;
    loop {
        let datagram = port.receive_async().await;
        // Those of others, and forged ones, are passed over.
        if datagram.remote == server
            && let Some(answer) = answer(query, &datagram.data)
        {
            return Some(answer);
        }
    }
}

/// The same question after its length (RFC 1035, section 4.2.2).
async fn ask_by_tcp(stack: &TcpStack, server: SocketAddr, query: &[u8]) -> Option<Answer> {
    let stream = stack.connect_async(server).await.ok()?;
    let mut stream = &stream;
    stream.write_u16(query.len() as u16).await.ok()?;
    stream.write_all(query).await.ok()?;
    let mut bytes = vec![0; usize::from(stream.read_u16().await.ok()?)];
    stream.read_exact(&mut bytes).await.ok()?;
    answer(query, &bytes).filter(|answer| *answer != Answer::Truncated)
}

/// A port drawn at random, so that a host that does not see the query cannot forge an answer.
fn bind(stack: &TcpStack) -> Option<UdpPort> {
    (0..PORTS_TRIED).find_map(|_| {
        let mut random = [0; 2];
        net::os_random(&mut random).ok()?;
        stack.bind_udp(PORTS.start() + u16::from_be_bytes(random) % (PORTS.len() as u16)).ok()
    })
}

/// A query for the addresses of `name`; `None` if it is no name of a host.
fn query(id: u16, name: &str, kind: TYPE) -> Option<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(Question::new(Name::new(name).ok()?, kind.into(), CLASS::IN.into(), false));
    packet.build_bytes_vec().ok()
}

/// What `bytes` says, if it answers this query.
fn answer(query: &[u8], bytes: &[u8]) -> Option<Answer> {
    let (query, reply) = (Packet::parse(query).ok()?, Packet::parse(bytes).ok()?);
    let [asked] = &query.questions[..] else { return None };
    let is_answer = reply.has_flags(PacketFlag::RESPONSE)
        && reply.id() == query.id()
        && reply
            .questions
            .first()
            .is_some_and(|question| question.qtype == asked.qtype && question.qname == asked.qname);
    if !is_answer {
        return None;
    }
    if reply.has_flags(PacketFlag::TRUNCATION) {
        return Some(Answer::Truncated);
    }
    Some(match reply.rcode() {
        RCODE::NoError => Answer::Addresses(
            reply
                .answers
                .iter()
                .filter_map(|record| match &record.rdata {
                    RData::A(found) => Some(IpAddr::V4(found.address.into())),
                    RData::AAAA(found) => Some(IpAddr::V6(found.address.into())),
                    // The names on the way (CNAME).
                    _ => None,
                })
                .collect(),
        ),
        RCODE::NameError => Answer::NoSuchName,
        _ => Answer::Failed,
    })
}

#[cfg(test)]
mod tests {
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::{A, CNAME};

    use super::*;

    fn reply(query: &[u8], change: impl FnOnce(&mut Packet<'_>)) -> Vec<u8> {
        let mut packet = Packet::parse(query).expect("a query").into_reply();
        change(&mut packet);
        packet.build_bytes_vec().expect("a reply")
    }

    #[test]
    fn an_answer_has_the_addresses_behind_other_names() {
        let query = query(7, "a.example", TYPE::A).expect("a name");
        let name = || Name::new_unchecked("a.example");
        let bytes = reply(&query, |packet| {
            let other = RData::CNAME(CNAME(Name::new_unchecked("b.example")));
            let address = RData::A(A { address: 0xc000_0201 });
            packet.answers =
                [other, address].map(|data| ResourceRecord::new(name(), CLASS::IN, 60, data)).into_iter().collect();
        });
        let expected = Answer::Addresses(vec!["192.0.2.1".parse().expect("an address")]);
        assert_eq!(answer(&query, &bytes), Some(expected));
        for len in 0..bytes.len() {
            let cut = answer(&query, &bytes[..len]);
            assert!(cut.is_none() || cut == Some(Answer::Addresses(Vec::new())), "{len}: {cut:?}");
        }
    }

    #[test]
    fn what_does_not_answer_the_query_is_passed_over() {
        let [asked, other] =
            [(7, "a.example"), (8, "a.example")].map(|(id, name)| query(id, name, TYPE::A).expect("a name"));
        assert_eq!(answer(&asked, &reply(&other, |_| {})), None, "another number");
        assert_eq!(answer(&asked, &asked), None, "a query");
        let name = query(7, "b.example", TYPE::A).expect("a name");
        assert_eq!(answer(&asked, &reply(&name, |_| {})), None, "another name");
        let kind = query(7, "a.example", TYPE::AAAA).expect("a name");
        assert_eq!(answer(&asked, &reply(&kind, |_| {})), None, "another kind");
        assert_eq!(answer(&asked, b""), None);
        let mut seed = units::Rng::from_seed(5);
        for _ in 0..10_000 {
            let mut bytes = reply(&asked, |_| {});
            let at = seed.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << seed.below(8);
            let _any = answer(&asked, &bytes);
        }
    }

    #[test]
    fn failures_and_cut_answers_are_told_apart() {
        let query = query(7, "a.example", TYPE::A).expect("a name");
        for (code, expected) in [(RCODE::NameError, Answer::NoSuchName), (RCODE::ServerFailure, Answer::Failed)] {
            assert_eq!(answer(&query, &reply(&query, |packet| *packet.rcode_mut() = code)), Some(expected));
        }
        let cut = reply(&query, |packet| packet.set_flags(PacketFlag::TRUNCATION));
        assert_eq!(answer(&query, &cut), Some(Answer::Truncated));
    }
}
