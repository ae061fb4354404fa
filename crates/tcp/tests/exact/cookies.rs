//! SYN cookies (RFC 4987, section 3.6).

use std::sync::Arc;

use bytes::Bytes;
use tcp::{Arrival, COOKIE_LIFETIME, Connection, HostSecret, Plan, Read, State, SuperPacket, TcpConfig, Tuple};
use units::{Duration, Instant, Seq32};
use wire::tcp::Flags;

use crate::support::{CLIENT, SERVER};

/// A client that connects, and a server that keeps no state of its SYN.
struct Cookies {
    now: Instant,
    secret: HostSecret,
    config: Arc<TcpConfig>,
    client: Connection,
}

/// Returns the segments that a connection sends now.
fn sent(now: Instant, connection: &mut Connection) -> Vec<Arrival> {
    let (mut plan, mut all) = (Plan::default(), Vec::new());
    while connection.poll_plan(now, 16, &mut plan) {
        all.append(&mut segments(&plan));
    }
    all
}

fn segments(plan: &Plan) -> Vec<Arrival> {
    let (mut packet, mut all) = (SuperPacket::default(), Vec::new());
    plan.seal(&mut packet);
    packet.packets(|bytes| all.push(Arrival::open(&Bytes::copy_from_slice(bytes), None, false).expect("valid")));
    all
}

impl Cookies {
    fn between(client: TcpConfig, server: TcpConfig) -> Self {
        let tuple = Tuple { local: CLIENT, remote: SERVER };
        let now = Instant::ZERO + Duration::from_secs(1000);
        Self {
            now,
            secret: HostSecret::new([7; 32]),
            config: Arc::new(server),
            client: Connection::connect(now, client, tuple, Seq32::new(u32::MAX - 5), 3),
        }
    }

    /// Returns the answer to the client's SYN.
    fn answer(&mut self) -> Arrival {
        let syn = sent(self.now, &mut self.client).remove(0);
        let mut plan = Plan::default();
        Connection::answer_with_cookie(self.now, &self.config, &self.secret, &syn, &mut plan);
        segments(&plan).remove(0)
    }

    /// Returns the last segment of the handshake.
    fn acknowledgement(&mut self) -> Arrival {
        let answer = self.answer();
        self.now += Duration::from_millis(30);
        self.client.handle_segment(self.now, answer);
        assert_eq!(self.client.state(), State::Established);
        sent(self.now, &mut self.client).remove(0)
    }

    fn accept(&self, arrival: Arrival) -> Option<Connection> {
        Connection::accept_cookie(self.now, &self.config, &self.secret, arrival)
    }

    /// Sends `bytes` from one side to the other, with 30 ms each way.
    fn exchange(&mut self, server: &mut Connection, bytes: &[u8]) {
        for to_server in [true, false] {
            let (from, to) =
                if to_server { (&mut self.client, &mut *server) } else { (&mut *server, &mut self.client) };
            let (mut unwritten, mut received) = (Bytes::copy_from_slice(bytes), Vec::new());
            for _ in 0..10_000 {
                let _full = from.write(&mut unwritten);
                for arrival in sent(self.now, from) {
                    to.handle_segment(self.now + Duration::from_millis(30), arrival);
                }
                self.now += Duration::from_millis(30);
                while let Read::Bytes(read) = to.read(usize::MAX) {
                    received.extend_from_slice(&read);
                }
                for arrival in sent(self.now, to) {
                    from.handle_segment(self.now + Duration::from_millis(30), arrival);
                }
                self.now += Duration::from_millis(30);
                from.handle_timeout(self.now);
                to.handle_timeout(self.now);
                if received.len() == bytes.len() {
                    break;
                }
            }
            assert!(received == bytes, "to the server: {to_server}, {} bytes", received.len());
        }
    }
}

#[test]
fn a_client_connects_whatever_it_offers() {
    for bits in 0..32_u32 {
        let has = |bit: u32| bits & 1 << bit != 0;
        let client = TcpConfig {
            timestamps: has(0),
            sack: has(1),
            window_scaling: has(2),
            ecn: has(3),
            mtu: if has(4) { 9000 } else { 1500 },
            ..TcpConfig::default()
        };
        let mut cookies = Cookies::between(client.clone(), TcpConfig { mtu: 9000, ..TcpConfig::default() });
        let answer = cookies.answer();
        let options = answer.header.options;
        // Without timestamps only the segment size is kept.
        let expected = (has(0) && has(1), has(0) && has(2), has(0) && has(3));
        let is_marked = answer.header.flags.contains(Flags::ECE);
        assert_eq!((options.sack_permitted, options.window_scale.is_some(), is_marked), expected, "{bits:b}");
        cookies.now += Duration::from_millis(30);
        cookies.client.handle_segment(cookies.now, answer);
        let acknowledgement = sent(cookies.now, &mut cookies.client).remove(0);
        let mut server = cookies.accept(acknowledgement).expect("its cookie is valid");
        assert_eq!(server.state(), State::Established);
        let segment = if has(4) { 8940 } else { 1460 } - if has(0) { 12 } else { 0 };
        assert_eq!(server.segment(), segment, "{bits:b}");
        assert!(sent(cookies.now, &mut server).is_empty(), "the answer to the SYN is not sent again");
        cookies.exchange(&mut server, &crate::support::pattern(300_000, bits.into()));
        // With a window of 64 KiB and a round trip of 60 ms, more than four round trips are needed.
        assert_eq!(server.stats().send.timeouts + cookies.client.stats().send.timeouts, 0, "{bits:b}");
    }
}

#[test]
fn the_round_trip_is_measured_by_data_and_not_by_the_cookie() {
    for timestamps in [true, false] {
        let client = TcpConfig { timestamps, ..TcpConfig::default() };
        let mut cookies = Cookies::between(client.clone(), TcpConfig::default());
        let acknowledgement = cookies.acknowledgement();
        let mut server = cookies.accept(acknowledgement).expect("its cookie is valid");
        let unmeasured = Connection::connect(cookies.now, client, *server.tuple(), Seq32::new(0), 0).rtt();
        assert_eq!(server.rtt(), unmeasured);
        // Two full segments, which are acknowledged at once.
        cookies.exchange(&mut server, &[7; 2920]);
        assert_eq!(server.rtt().as_millis(), 60, "{timestamps}");
    }
}

#[test]
fn later_timestamps_are_not_before_the_cookies() {
    // Every millisecond of a tick of the options.
    for millis in 0..64 {
        let mut cookies = Cookies::between(TcpConfig::default(), TcpConfig::default());
        cookies.now += Duration::from_millis(millis);
        let answer = cookies.answer();
        let first = answer.header.options.timestamps.expect("offered").value;
        cookies.client.handle_segment(cookies.now, answer);
        let acknowledgement = sent(cookies.now, &mut cookies.client).remove(0);
        let mut server = cookies.accept(acknowledgement).expect("its cookie is valid");
        server.write(&mut Bytes::from_static(b"hello")).expect("there is space");
        let next = sent(cookies.now, &mut server).remove(0);
        let age = next.header.options.timestamps.expect("negotiated").value.wrapping_sub(first);
        assert!(age < 64, "{millis}: {age}");
        cookies.client.handle_segment(cookies.now, next);
        assert_eq!(cookies.client.read(10), Read::Bytes(Bytes::from_static(b"hello")), "{millis}");
    }
}

#[test]
fn data_and_the_end_may_come_with_the_cookie() {
    let mut cookies = Cookies::between(TcpConfig::default(), TcpConfig::default());
    let answer = cookies.answer();
    cookies.client.handle_segment(cookies.now, answer);
    drop(sent(cookies.now, &mut cookies.client));
    cookies.client.write(&mut Bytes::from_static(b"hello")).expect("there is space");
    cookies.client.finish();
    let arrival = sent(cookies.now, &mut cookies.client).remove(0);
    assert!(arrival.header.flags.contains(Flags::FIN) && arrival.data == "hello");
    let mut server = cookies.accept(arrival).expect("its cookie is valid");
    assert_eq!(server.state(), State::CloseWait);
    assert_eq!(server.read(10), Read::Bytes(Bytes::from_static(b"hello")));
    assert_eq!(server.read(10), Read::End);
}

#[test]
fn a_cookie_is_valid_for_its_connection_and_host_and_for_a_while() {
    let mut cookies = Cookies::between(TcpConfig::default(), TcpConfig::default());
    let arrival = cookies.acknowledgement();
    let start = cookies.now;
    assert!(cookies.accept(arrival.clone()).is_some());
    for bit in 0..32 {
        let mut changed = arrival.clone();
        changed.header.ack = Seq32::new(arrival.header.ack.get() ^ 1 << bit);
        assert!(cookies.accept(changed).is_none(), "bit {bit} of the number");
        let mut changed = arrival.clone();
        changed.header.seq = Seq32::new(arrival.header.seq.get() ^ 1 << bit);
        assert!(cookies.accept(changed).is_none(), "bit {bit} of the peer's number");
    }
    let changes: [fn(&mut Tuple); 4] = [
        |tuple| tuple.remote.set_port(1),
        |tuple| tuple.local.set_port(1),
        |tuple| tuple.remote.set_ip([10, 0, 0, 9].into()),
        |tuple| tuple.local.set_ip([10, 0, 0, 9].into()),
    ];
    for change in changes {
        let mut changed = arrival.clone();
        change(&mut changed.tuple);
        assert!(cookies.accept(changed).is_none());
    }
    let other = HostSecret::new([8; 32]);
    assert!(Connection::accept_cookie(cookies.now, &cookies.config, &other, arrival.clone()).is_none());
    // The cookie is valid in the period of its creation, and in the next one.
    cookies.now = start + Duration::from_secs(64);
    assert!(cookies.accept(arrival.clone()).is_some());
    cookies.now = start + COOKIE_LIFETIME;
    assert!(cookies.accept(arrival.clone()).is_none());
    // The bit of the period repeats, the code does not.
    cookies.now = start + COOKIE_LIFETIME * 2;
    assert!(cookies.accept(arrival).is_none());
}
