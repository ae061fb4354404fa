//! [`Tcp`]: the state of a stack that belongs to no connection: routes, listening ports,
//! connections in TIME-WAIT, and answers to packets without a connection.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use driver::protocol::{Batch, BatchDrop, Begun, Cell, NoLeases, Verify};
use driver::{ConnectionKey, EndReason, Protocol, Route};
use tcp::listen::{self, Listening};
use tcp::sources::is_group;
use tcp::{Arrival, HostSecret, Md5Key, Plan, SegmentHead, SuperPacket, TcpConfig, TimeWait, Tuple, icmp};
use units::{Duration, Instant};

use crate::application::{Closed, Connect, TcpApplication, TcpCell, TcpShared};
use crate::connection::{RouteChange, TcpConnection};
use crate::counters::{Count, HostCounters};
use crate::detached::{DetachedHalf, Report, Update};
use crate::fragments::host::{Fragments, fill};
use crate::layers::{Layers, seal};
use crate::link::Prefix;
use crate::listeners::{Admission, Listeners, ListeningPorts, Port};
use crate::packets::{Content, OpenSegment, Opened, Received, SegmentPlan};
use crate::records::RecordJob;
use crate::shard::{self, Shard};
use crate::signature::Signature;
use crate::table::Table;
use crate::time_wait::TimeWaits;
use crate::transparent::{HeldSyns, Transparent};
use crate::udp::UdpHost;

/// Limit on connections in TIME-WAIT; beyond it the oldest is forgotten. Each takes about 200
/// bytes.
const TIME_WAIT_MAX: usize = 65_536;

/// Limit on resets and ICMP messages in a period: a flood of packets is answered, but not each of
/// them.
const ANSWERS_MAX: u32 = 1000;
const ANSWER_PERIOD: Duration = Duration::from_secs(1);

/// An address of this host, and its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address.
    pub ip: IpAddr,
    /// Index of the device.
    pub device: usize,
}

/// TCP/IP as the driver's protocol.
#[derive(Debug)]
pub struct Tcp {
    config: Arc<TcpConfig>,
    secret: HostSecret,
    layers: Option<Arc<Layers>>,
    addresses: Vec<LocalAddress>,
    /// Directed broadcast addresses of its networks.
    broadcasts: Vec<IpAddr>,
    shard: Shard,
    listeners: Listeners,
    /// Held SYNs of a transparent stack.
    pub(crate) held: Option<HeldSyns>,
    pub(crate) counters: Arc<HostCounters>,
    by_tuple: Table<ConnectionKey>,
    by_key: BTreeMap<ConnectionKey, Known>,
    /// Counter of outgoing connections.
    connect_counter: u32,
    time_waits: TimeWaits,
    fragments: Fragments,
    udp: Arc<UdpHost>,
    answers_left: u32,
    answers_until: Option<Instant>,
    pub(crate) plan: Plan,
}

/// Outcome for a segment without a connection.
#[expect(clippy::large_enum_variant, reason = "taken apart at once")]
enum Taken {
    /// The segment begins a connection.
    Connection(tcp::Connection),
    /// The answer is in `plan`.
    Answer,
    Nothing,
}

/// The protocol's record of a connection.
#[derive(Debug)]
struct Known {
    tuple: Tuple,
    /// Port whose half-open connections include it.
    half_open_of: Option<Arc<Port>>,
}

impl Tcp {
    /// Creates a stack with these addresses.
    pub fn new(config: TcpConfig, secret: HostSecret, addresses: Vec<LocalAddress>) -> Self {
        let key = secret.table_key();
        Self {
            config: Arc::new(config),
            secret,
            layers: None,
            addresses,
            broadcasts: Vec::new(),
            shard: Shard::default(),
            listeners: Listeners::default(),
            held: None,
            counters: Arc::default(),
            by_tuple: Table::new(key),
            by_key: BTreeMap::new(),
            connect_counter: 0,
            time_waits: TimeWaits::new(key, TIME_WAIT_MAX),
            udp: Arc::default(),
            fragments: Fragments::new(u32::from_le_bytes([key[0], key[1], key[2], key[3]])),
            answers_left: ANSWERS_MAX,
            answers_until: None,
            plan: Plan::default(),
        }
    }

    /// Accepts connections to these ports, shared by the drivers of one stack.
    #[must_use]
    pub fn with_listening(mut self, ports: Arc<ListeningPorts>) -> Self {
        self.listeners = Listeners::new(ports);
        self
    }

    /// Sets the networks of its devices: packets from their directed broadcast addresses are
    /// dropped, and connections to these are impossible.
    #[must_use]
    pub fn with_networks(mut self, networks: &[Prefix]) -> Self {
        self.broadcasts = networks.iter().filter_map(Prefix::directed_broadcast).map(IpAddr::V4).collect();
        self
    }

    /// Makes the stack transparent: it has all addresses, on its first device, and the application
    /// decides about each SYN. It has no security layers and one driver.
    #[must_use]
    pub fn with_transparent(mut self, transparent: Arc<Transparent>) -> Self {
        self.held = Some(HeldSyns::new(transparent, self.secret.table_key()));
        self
    }

    /// Limits the stack to the connections of this shard: the other drivers of the stack have the
    /// others.
    #[must_use]
    pub const fn with_shard(mut self, shard: Shard) -> Self {
        self.shard = shard;
        self
    }

    /// Gives the stack these UDP ports, shared by the drivers of one stack.
    #[must_use]
    pub fn with_udp(mut self, udp: Arc<UdpHost>) -> Self {
        self.udp = udp;
        self
    }

    /// Counts in `counters`, shared by the drivers of one stack.
    #[must_use]
    pub fn with_counters(mut self, counters: Arc<HostCounters>) -> Self {
        self.counters = counters;
        self
    }

    /// Adds security layers.
    #[must_use]
    pub fn with_layers(mut self, layers: Layers) -> Self {
        let config = Arc::make_mut(&mut self.config);
        config.mtu = config.mtu.saturating_sub(layers.below_len());
        self.layers = Some(Arc::new(layers));
        self
    }

    fn is_local(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|address| address.ip == ip)
            || self.held.is_some() && !is_group(ip) && !ip.is_unspecified()
    }

    /// Returns whether packets from outside may have this source, judging by the stack's own
    /// addresses and networks.
    fn is_foreign_host(&self, source: IpAddr) -> bool {
        !self.broadcasts.contains(&source) && !self.addresses.iter().any(|address| address.ip == source)
    }

    /// Counts a dropped packet, and returns its route.
    fn dropped(&self, reason: Count) -> Route {
        self.counters.add(reason);
        Route::Unknown
    }

    /// Returns the device of an address of the stack; otherwise the first device.
    fn device_of(&self, ip: Option<IpAddr>) -> usize {
        self.addresses.iter().find(|address| Some(address.ip) == ip).map_or(0, |address| address.device)
    }

    /// Takes the next outgoing datagram, and returns its device.
    fn poll_datagram(&mut self, out: &mut SuperPacket) -> Option<usize> {
        loop {
            let packet = self.udp.pop_outgoing()?;
            let device = self.device_of(wire::ip::Packet::parse(&packet).ok().map(|packet| packet.source));
            fill(out, packet, 0);
            if self.fragments.divide(self.config.mtu, out) {
                return Some(device);
            }
        }
    }

    pub(crate) fn is_taken(&self, tuple: &Tuple) -> bool {
        self.by_tuple.contains(tuple) || self.time_waits.contains(tuple)
    }

    /// Chooses the local address and port of a connection to `remote` from `device`.
    fn choose_local(&mut self, wanted: Option<SocketAddr>, remote: SocketAddr, device: usize) -> Option<Tuple> {
        let suits = |address: &&LocalAddress| address.device == device && address.ip.is_ipv4() == remote.is_ipv4();
        let ip = match wanted.map(|wanted| wanted.ip()).filter(|ip| !ip.is_unspecified()) {
            Some(ip) => self.is_local(ip).then_some(ip)?,
            None => self.addresses.iter().find(suits)?.ip,
        };
        let tuple = |port| Tuple { local: (ip, port).into(), remote };
        if let Some(port) = wanted.map(|wanted| wanted.port()).filter(|port| *port != 0) {
            let tuple = tuple(port);
            // A transparent stack acts for a host that has chosen the port, and has its own
            // TIME-WAIT.
            let is_free = if self.held.is_some() { !self.by_tuple.contains(&tuple) } else { !self.is_taken(&tuple) };
            return Some(tuple).filter(|tuple| self.shard.owns(tuple) && is_free);
        }
        self.connect_counter = self.connect_counter.wrapping_add(1);
        let any_port = tuple(0);
        let ports = self.secret.ports(&any_port, self.connect_counter);
        ports.map(tuple).find(|tuple| self.shard.owns(tuple) && !self.is_taken(tuple))
    }

    fn forget_tuple(&mut self, tuple: &Tuple, key: ConnectionKey) {
        if self.by_tuple.get(tuple) == Some(&key) {
            self.by_tuple.remove(tuple);
        }
        if let Some(port) = self.by_key.remove(&key).and_then(|known| known.half_open_of) {
            port.on_half_open_left();
        }
        self.note_own(tuple);
    }

    /// Returns the configuration of connections whose segments carry digests with this key.
    fn config_with(&self, md5: Option<&Md5Key>) -> Arc<TcpConfig> {
        match md5 {
            None => Arc::clone(&self.config),
            Some(key) => Arc::new(TcpConfig { md5: Some(key.clone()), ..TcpConfig::clone(&self.config) }),
        }
    }

    /// Returns the configuration of connections to the destination port of a segment.
    fn config_of(&self, arrival: &Arrival) -> Arc<TcpConfig> {
        self.config_with(self.listeners.md5(arrival.tuple.local.port()))
    }

    /// Returns the verifier of a segment without a connection.
    fn signature_of(&self, batch: &Received) -> Option<Signature> {
        let Content::Segment(head) = batch.content() else { return None };
        let key = match self.time_waits.get(&head.tuple) {
            Some(time_wait) => time_wait.md5(),
            None => self.listeners.md5(head.tuple.local.port()),
        };
        key.map(Signature::new)
    }

    /// Returns whether this SYN begins a connection: its port listens, and any connection in
    /// TIME-WAIT gives way.
    fn begins(&self, now: Instant, arrival: &Arrival) -> bool {
        let gives_way = |time_wait: &TimeWait| time_wait.may_be_replaced(now, arrival);
        listen::judge(arrival.header.flags) == Listening::Begins
            && self.listens(&arrival.tuple)
            && self.time_waits.get(&arrival.tuple).is_none_or(gives_way)
    }

    /// Returns whether a segment without a connection is addressed to a listening port.
    fn listens(&self, tuple: &Tuple) -> bool {
        self.held.is_some() || self.listeners.contains(tuple.local.port())
    }

    /// Returns whether the source of a packet from outside is this host, which has not sent it, or
    /// a whole network: RFC 1122, section 3.2.1.3, forbids any host to answer it. A connection of
    /// the stack to itself has both directions here.
    fn is_forged(&self, tuple: &Tuple) -> bool {
        let source = tuple.remote.ip();
        let is_invalid = source == tuple.local.ip() || !self.is_foreign_host(source);
        is_invalid && !self.by_tuple.contains(&Tuple { local: tuple.remote, remote: tuple.local })
    }

    /// Begins a connection with a SYN, or answers it with a cookie.
    fn take_syn(&mut self, now: Instant, arrival: &Arrival, is_busy: bool) -> Taken {
        match self.listeners.admission(arrival.tuple.local.port(), is_busy) {
            Admission::Full => {
                self.counters.add(Count::BacklogDrops);
                Taken::Nothing
            }
            Admission::Cookie => {
                self.time_waits.end(&arrival.tuple);
                let config = self.config_of(arrival);
                tcp::Connection::answer_with_cookie(now, &config, &self.secret, arrival, &mut self.plan);
                self.listeners.on_cookie_sent(now);
                self.counters.add(Count::CookiesSent);
                self.counters.add(Count::Taken);
                Taken::Answer
            }
            Admission::Connection => {
                self.counters.add(Count::Taken);
                Taken::Connection(self.begin_accepted(now, arrival))
            }
        }
    }

    /// Begins the connection of a SYN.
    pub(crate) fn begin_accepted(&mut self, now: Instant, arrival: &Arrival) -> tcp::Connection {
        self.time_waits.end(&arrival.tuple);
        let initial = self.secret.initial_sequence(now, &arrival.tuple);
        let offset = self.secret.timestamp_offset(&arrival.tuple);
        tcp::Connection::accept(now, self.config_of(arrival), arrival, initial, offset)
    }

    /// Begins a connection with the last segment of a handshake with a cookie, or answers a segment
    /// without a connection.
    fn take_other(&mut self, now: Instant, arrival: &Arrival) -> Taken {
        let port = arrival.tuple.local.port();
        let may_be_cookie = arrival.is_acknowledging()
            && self.listeners.awaits_cookies(now)
            && self.listeners.contains(port)
            && !self.time_waits.contains(&arrival.tuple);
        if may_be_cookie {
            let connection =
                tcp::Connection::accept_cookie(now, &self.config_of(arrival), &self.secret, arrival.clone());
            let has_space = self.listeners.has_space(port);
            match connection {
                Some(connection) if has_space => {
                    self.counters.add(Count::CookiesAccepted);
                    self.counters.add(Count::Taken);
                    return Taken::Connection(connection);
                }
                Some(_) => {
                    self.counters.add(Count::BacklogDrops);
                    return Taken::Nothing;
                }
                // The segments before it, which would have begun the connection, may be lost. Its
                // sender repeats them, and a reset would end a connection that it believes
                // complete.
                None if !arrival.data.is_empty() => {
                    self.counters.add(Count::Unwanted);
                    return Taken::Nothing;
                }
                None => {}
            }
        }
        if self.answer(now, arrival) { Taken::Answer } else { Taken::Nothing }
    }

    fn may_answer(&mut self, now: Instant) -> bool {
        if self.answers_until.is_none_or(|until| until <= now) {
            (self.answers_left, self.answers_until) = (ANSWERS_MAX, Some(now + ANSWER_PERIOD));
        }
        let may = self.answers_left > 0;
        self.answers_left = self.answers_left.saturating_sub(1);
        may
    }

    /// Counts a segment with an incorrect digest between TCP and IP. A stack without digests
    /// answers that the protocol is unknown (RFC 1122, section 3.2.2.1); one with digests does not
    /// answer a stranger.
    fn refuse_unauthentic(&mut self, now: Instant, batch: &Received, out: &mut SuperPacket) -> bool {
        self.counters.add(Count::UnauthenticSegments);
        let has_digest = self.layers.as_ref().is_some_and(|layers| layers.digest().is_some());
        let has_answer = !has_digest && self.may_answer(now) && icmp::answer(batch.packet(), out);
        has_answer && self.fragments.divide(self.config.mtu, out)
    }

    /// Counts packets that could not be reassembled.
    fn note_failures(&mut self) {
        match self.fragments.take_failures() {
            0 => {}
            failures => self.counters.add_many(Count::ReassemblyFailures, failures),
        }
    }

    /// Counts a packet that nothing in the stack accepts.
    fn count_answer(&self, has_answer: bool) -> bool {
        self.counters.add(if has_answer { Count::Answered } else { Count::Unwanted });
        has_answer
    }

    fn answer(&mut self, now: Instant, arrival: &Arrival) -> bool {
        if let Some(has_answer) = self.time_waits.handle_segment(now, arrival, &mut self.plan) {
            self.counters.add(Count::Taken);
            return has_answer;
        }
        // RFC 9293, sections 3.10.7.1 and 3.10.7.2.
        let is_dropped = self.listens(&arrival.tuple) && listen::judge(arrival.header.flags) == Listening::Dropped;
        let has_answer = !is_dropped && self.may_answer(now) && tcp::reply::reset(arrival, &mut self.plan);
        // Without a digest, the peer would not accept it.
        self.plan.sign(self.listeners.md5(arrival.tuple.local.port()));
        self.count_answer(has_answer)
    }
}

impl Protocol for Tcp {
    type Connection = TcpConnection;
    type Application = TcpApplication;
    type Batch = Received;
    type Plan = SegmentPlan;
    type Sealed = SuperPacket;
    type OpenJob = OpenSegment;
    type Job = RecordJob;
    type Leases = NoLeases;
    type ReceiveHalf = Box<DetachedHalf>;
    type HalfReport = Report;
    type HalfUpdate = Update;
    type RouteId = Tuple;

    fn verify(&self) -> Option<Verify<Self>> {
        let layers = self.layers.clone();
        Some(Arc::new(move |batch| batch.verify_early(layers.as_deref())))
    }

    fn route(&self, batch: &Received) -> (usize, Route) {
        // The listening state of its port is checked when it is processed.
        let begins = |head: &SegmentHead| head.is_opening() || head.is_acknowledging() && self.listeners.may_complete();
        let (tuple, begins) = match batch.content() {
            Content::Segment(head) => (&head.tuple, begins(head)),
            Content::Error(error) => (&error.tuple, false),
            Content::Other(ends) | Content::Fragment(ends) if !self.is_foreign_host(ends.source) => {
                return (batch.len_bytes(), self.dropped(Count::InvalidSources));
            }
            Content::Other(ends) if self.is_local(ends.destination) => return (batch.len_bytes(), Route::Reply),
            Content::Fragment(ends) if self.is_local(ends.destination) => return (batch.len_bytes(), Route::Fragment),
            Content::Fragment(_) | Content::Other(_) => return (batch.len_bytes(), self.dropped(Count::NotOurs)),
            Content::Dropped(reason) => return (batch.len_bytes(), self.dropped(*reason)),
            Content::Nothing => return (batch.len_bytes(), Route::Unknown),
        };
        let route = match self.by_tuple.get(tuple) {
            Some(key) => Route::Known(*key),
            None if !self.is_local(tuple.local.ip()) => self.dropped(Count::NotOurs),
            // The driver passes it on to the one that has it.
            None if !self.shard.owns(tuple) => Route::Unknown,
            None if self.is_forged(tuple) => self.dropped(Count::InvalidSources),
            None if begins => Route::Begins,
            None => Route::Reply,
        };
        (batch.len_bytes(), route)
    }

    fn route_id(batch: &Received) -> Option<(usize, Tuple)> {
        let tuple = match batch.content() {
            Content::Segment(head) => head.tuple,
            Content::Error(error) => error.tuple,
            Content::Fragment(_) | Content::Other(_) | Content::Dropped(_) | Content::Nothing => return None,
        };
        Some((batch.len_bytes(), tuple))
    }

    fn shard_of(&self, batch: &Received, count: usize) -> Option<usize> {
        Self::route_id(batch).map(|(_, tuple)| shard::of(&tuple, count))
    }

    fn connect(&mut self, now: Instant, request: Connect, cell: &Arc<TcpCell>, socket: usize) -> Option<TcpConnection> {
        let remote = cell.remote().ip();
        // RFC 9293, section 3.9.1.1, MUST-46.
        if is_group(remote) || remote.is_unspecified() || self.broadcasts.contains(&remote) {
            cell.close(Closed::Configuration(format!("{remote} is the address of no single host: connect to a host")));
            return None;
        }
        let Some(tuple) = self.choose_local(request.local, cell.remote(), socket) else {
            cell.refuse(EndReason::NoSocket);
            return None;
        };
        let initial = self.secret.initial_sequence(now, &tuple);
        let offset = self.secret.timestamp_offset(&tuple);
        let mut config = self.config_with(request.md5.as_ref());
        if let Some(ecn) = request.ecn.filter(|ecn| *ecn != config.ecn) {
            Arc::make_mut(&mut config).ecn = ecn;
        }
        let mut connection = tcp::Connection::connect(now, config, tuple, initial, offset);
        if request.dscp != 0 {
            connection.set_dscp(request.dscp);
        }
        let signature = request.md5.map(|key| Signature::new(&key));
        let counters = Arc::clone(&self.counters);
        let connection = TcpConnection::new(connection, Arc::clone(cell), counters, socket, false)
            .with_signature(signature)
            .with_end_if_unreachable(request.ends_if_unreachable);
        Some(connection.with_layers(self.layers.as_ref(), || self.secret.salt(now, &tuple)))
    }

    fn accept(
        &mut self,
        now: Instant,
        shared: &Arc<TcpShared>,
        socket: usize,
        batch: Received,
        _may_be_foreign: bool,
        is_busy: bool,
    ) -> Begun<Self> {
        self.listeners.refresh();
        let signature = self.signature_of(&batch);
        let opened = batch.open(self.layers.as_deref(), signature.as_ref());
        let arrival = match opened {
            Opened::Segment(arrival) => arrival,
            Opened::Unauthentic => {
                let mut out = SuperPacket::default();
                let has_answer = self.refuse_unauthentic(now, &batch, &mut out);
                return if has_answer { Begun::Reply(out) } else { Begun::Nothing };
            }
            Opened::Dropped(reason) => {
                self.counters.add(reason);
                return Begun::Nothing;
            }
            Opened::Error(_) | Opened::Other => {
                self.counters.add(Count::Unwanted);
                return Begun::Nothing;
            }
        };
        let tuple = arrival.tuple;
        let begins = self.begins(now, &arrival);
        if begins && self.held.is_some() {
            return self.hold_syn(socket, batch, &arrival);
        }
        let taken = if begins { self.take_syn(now, &arrival, is_busy) } else { self.take_other(now, &arrival) };
        match taken {
            Taken::Connection(connection) => {
                let port = self.listeners.get(tuple.local.port()).map(Arc::clone).expect("the port listens");
                let cell = TcpCell::accepted(Arc::clone(shared), tuple.remote, port);
                let counters = Arc::clone(&self.counters);
                let connection = TcpConnection::new(connection, Arc::clone(&cell), counters, socket, true)
                    .with_layers(self.layers.as_ref(), || self.secret.salt(now, &tuple))
                    .with_signature(signature);
                Begun::Connection(connection, cell)
            }
            Taken::Answer => {
                let mut out = SuperPacket::default();
                seal(&self.plan, self.layers.as_ref(), &mut out);
                Begun::Reply(out)
            }
            Taken::Nothing => Begun::Nothing,
        }
    }

    fn poll_decided(
        &mut self,
        now: Instant,
        _shared: &Arc<TcpShared>,
        may_begin: bool,
    ) -> Option<(usize, Begun<Self>)> {
        self.take_decision(now, may_begin)
    }

    fn release(packets: &mut SuperPacket) {
        packets.clear();
    }

    fn reply(&mut self, now: Instant, _socket: usize, batch: &Received, out: &mut SuperPacket) -> bool {
        self.listeners.refresh();
        match batch.open(self.layers.as_deref(), self.signature_of(batch).as_ref()) {
            Opened::Segment(arrival) => {
                let has_answer = self.answer(now, &arrival);
                if has_answer {
                    seal(&self.plan, self.layers.as_ref(), out);
                }
                has_answer
            }
            Opened::Error(_) => self.count_answer(false),
            Opened::Unauthentic => self.refuse_unauthentic(now, batch, out),
            Opened::Dropped(reason) => {
                self.counters.add(reason);
                false
            }
            Opened::Other => match self.udp.take(batch) {
                Some(fate) => {
                    self.counters.add(fate);
                    false
                }
                None => {
                    let has_answer = self.may_answer(now) && icmp::answer(batch.packet(), out);
                    let has_answer = has_answer && self.fragments.divide(self.config.mtu, out);
                    self.count_answer(has_answer)
                }
            },
        }
    }

    fn update_routes(&mut self, key: ConnectionKey, connection: &mut TcpConnection) {
        match connection.take_route_change() {
            Some(RouteChange::Add { tuple, is_half_open }) => {
                self.by_tuple.insert(tuple, key);
                // Otherwise the old one would answer segments of the new one after its end.
                self.time_waits.end(&tuple);
                self.note_own(&tuple);
                let half_open_of = connection.port().filter(|_| is_half_open).map(Arc::clone);
                if let Some(port) = &half_open_of {
                    port.on_half_open();
                }
                self.by_key.insert(key, Known { tuple, half_open_of });
            }
            Some(RouteChange::Connected) => {
                if let Some(port) = self.by_key.get_mut(&key).and_then(|known| known.half_open_of.take()) {
                    port.on_half_open_left();
                }
            }
            Some(RouteChange::Remove { tuple, time_wait }) => {
                self.forget_tuple(&tuple, key);
                if let Some(time_wait) = time_wait {
                    let forgotten = self.time_waits.keep(time_wait);
                    [Some(tuple), forgotten].iter().flatten().for_each(|tuple| self.note_own(tuple));
                }
            }
            None => {}
        }
    }

    fn forget(&mut self, key: ConnectionKey) {
        if let Some(tuple) = self.by_key.get(&key).map(|known| known.tuple) {
            self.forget_tuple(&tuple, key);
        }
    }

    fn reassemble(&mut self, now: Instant, _socket: usize, batch: Received) -> Option<Received> {
        let whole = self.fragments.take(now, &batch).inspect(|_| self.counters.add(Count::Reassembled));
        // It is counted after the packet that it completes, so that the number read is never less
        // than that of the fates.
        self.counters.add(Count::Fragments);
        self.note_failures();
        whole
    }

    fn note_dropped(&self, reason: BatchDrop) {
        self.counters.add(match reason {
            BatchDrop::Limit => Count::LimitDrops,
            BatchDrop::QueueFull => Count::QueueDrops,
            BatchDrop::Ended => Count::LateDrops,
        });
    }

    fn poll_reply(&mut self, _now: Instant, out: &mut SuperPacket) -> Option<usize> {
        self.fragments.poll_reply(out).or_else(|| self.poll_datagram(out))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let datagram = self.udp.has_outgoing().then_some(Instant::ZERO);
        let timeouts = [self.time_waits.poll_timeout(), self.fragments.poll_timeout(), datagram];
        timeouts.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        let expired = self.fragments.take_expired(now);
        self.note_failures();
        for first in expired {
            let mut out = SuperPacket::default();
            if self.may_answer(now) && icmp::reassembly_timed_out(&first, &mut out) {
                let destination = wire::ip::Packet::parse(&first).ok().map(|packet| packet.destination);
                self.fragments.queue(self.device_of(destination), &out);
            }
        }
        while let Some(tuple) = self.time_waits.pop_ended(now) {
            self.note_own(&tuple);
        }
    }
}
