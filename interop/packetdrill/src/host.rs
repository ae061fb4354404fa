//! [`Host`]: sockets, connections, and the packets between them and packetdrill.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::IntoRawFd;

use bytes::Bytes;
use tcp::listen::{self, Listening};
use tcp::sources::{is_group, is_valid_source};
use tcp::{
    Arrival, Connection, Event, HostSecret, Nagle, Plan, Read, State, SuperPacket, TcpConfig, Tuple, WriteError, icmp,
};
use units::{Duration, Instant};
use wire::tcp::{Flags, Header};
use wire::{checksum, ip};

use crate::options::Options;
use crate::settings::Settings;
use crate::socket::{Entry, Errno, Kind, Outcome, Socket, errno_of};

/// Segments in a plan: the device takes no super-packets, so it makes no difference to the packets.
const SEGMENTS_MAX: usize = 44;

/// Headers of IPv4 and TCP without options.
const HEADERS_LEN: usize = 40;

/// The port of a connection that was not bound: scripts see their own.
const FIRST_PORT: u16 = 40_000;

pub(crate) struct Host {
    pub(crate) now: Instant,
    settings: Settings,
    secret: HostSecret,
    sockets: BTreeMap<i32, Socket>,
    entries: BTreeMap<u64, Entry>,
    next: u64,
    /// Packets that packetdrill has not read, with their times.
    pub(crate) sent: VecDeque<(Instant, Vec<u8>)>,
}

impl Host {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            // A clock that has run for a while, as that of a host.
            now: Instant::ZERO + Duration::from_secs(1000),
            settings,
            secret: HostSecret::new([7; 32]),
            sockets: BTreeMap::new(),
            entries: BTreeMap::new(),
            next: 0,
            sent: VecDeque::new(),
        }
    }

    // ── Calls ────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn socket(&mut self) -> i32 {
        self.add(Kind::Fresh, None, Options::default())
    }

    fn add(&mut self, kind: Kind, local: Option<SocketAddr>, options: Options) -> i32 {
        // packetdrill closes what is left of a script by the system's call, so it must be a descriptor of
        // the system.
        let fd = File::open("/dev/null").expect("Linux has it").into_raw_fd();
        let socket = Socket { kind, local, is_nonblocking: false, options, is_read_closed: false, error: None };
        self.sockets.insert(fd, socket);
        fd
    }

    pub(crate) fn get(&mut self, fd: i32) -> Result<&mut Socket, Errno> {
        self.sockets.get_mut(&fd).ok_or(Errno(libc::EBADF))
    }

    pub(crate) fn bind(&mut self, fd: i32, address: SocketAddr) -> Result<(), Errno> {
        self.get(fd)?.local = Some(address);
        Ok(())
    }

    pub(crate) fn listen(&mut self, fd: i32, backlog: i32) -> Result<(), Errno> {
        let socket = self.get(fd)?;
        match &mut socket.kind {
            Kind::Fresh if socket.local.is_some() => {
                let backlog = usize::try_from(backlog).unwrap_or(0) + 1;
                socket.kind = Kind::Listening { waiting: VecDeque::new(), backlog };
                Ok(())
            }
            Kind::Listening { backlog: known, .. } => Ok(*known = usize::try_from(backlog).unwrap_or(0) + 1),
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    /// The first connection that waits for a call and whose handshake is complete.
    fn first_connected(&self, fd: i32) -> Option<u64> {
        let Kind::Listening { waiting, .. } = &self.sockets.get(&fd)?.kind else { return None };
        let is_connected =
            |id: &&u64| self.entries.get(id).is_some_and(|entry| entry.connection.state() != State::SynReceived);
        waiting.iter().find(is_connected).copied()
    }

    pub(crate) fn accept(&mut self, fd: i32) -> Outcome<(i32, SocketAddr)> {
        let first = self.first_connected(fd);
        let socket = match self.get(fd) {
            Ok(socket) => socket,
            Err(errno) => return Outcome::Failed(errno),
        };
        let (local, options) = (socket.local, socket.options.clone());
        let Kind::Listening { waiting, .. } = &mut socket.kind else { return Outcome::Failed(Errno(libc::EINVAL)) };
        let Some(id) = first else { return Outcome::Waits };
        waiting.retain(|waiting| *waiting != id);
        let entry = self.entries.get_mut(&id).expect("it is connected");
        (entry.listener, entry.is_connect_reported) = (None, true);
        let remote = entry.connection.tuple().remote;
        Outcome::Done((self.add(Kind::Stream(id), local, options), remote))
    }

    /// The configuration of a connection of this socket.
    fn config(&self, options: &Options, is_passive: bool) -> TcpConfig {
        let config = self.settings.config(is_passive);
        TcpConfig {
            nagle: if options.is_nodelay { Nagle::Off } else { config.nagle },
            receive_buffer: options.receive_buffer.map_or(config.receive_buffer, |bytes| 2 * bytes),
            send_buffer: options.send_buffer.map_or(config.send_buffer, |bytes| 2 * bytes),
            mtu: options.segment_max.map_or(config.mtu, |bytes| config.mtu.min(bytes + HEADERS_LEN)),
            ..config
        }
    }

    /// Begins a connection, or says how it stands.
    pub(crate) fn connect(&mut self, fd: i32, remote: SocketAddr) -> Outcome<()> {
        let socket = match self.get(fd) {
            Ok(socket) => socket,
            Err(errno) => return Outcome::Failed(errno),
        };
        let (bound, options) = (socket.local, socket.options.clone());
        match &socket.kind {
            Kind::Fresh => {
                let port = FIRST_PORT + self.next as u16;
                let tuple = Tuple { local: bound.unwrap_or(SocketAddr::new(self.settings.local, port)), remote };
                let (initial, offset) = self.numbers(&tuple);
                let connection = Connection::connect(self.now, self.config(&options, false), tuple, initial, offset);
                let id = self.insert(connection, None);
                self.get(fd).expect("it is there").kind = Kind::Stream(id);
                Outcome::Waits
            }
            Kind::Stream(id) => {
                let id = *id;
                let entry = self.entries.get_mut(&id).expect("a socket's connection is kept");
                let state = entry.connection.state();
                if let Some(reason) = entry.connection.close_reason().filter(|_| state == State::Closed) {
                    entry.is_connect_reported = true;
                    return Outcome::Failed(errno_of(reason));
                }
                match state {
                    State::SynSent | State::SynReceived => Outcome::Waits,
                    _ if std::mem::replace(&mut entry.is_connect_reported, true) => {
                        Outcome::Failed(Errno(libc::EISCONN))
                    }
                    _ => Outcome::Done(()),
                }
            }
            Kind::Listening { .. } => Outcome::Failed(Errno(libc::EINVAL)),
        }
    }

    fn numbers(&self, tuple: &Tuple) -> (units::Seq32, u32) {
        (self.secret.initial_sequence(self.now, tuple), self.secret.timestamp_offset(tuple))
    }

    fn insert(&mut self, connection: Connection, listener: Option<i32>) -> u64 {
        let id = self.next;
        self.next += 1;
        self.entries.insert(id, Entry { connection, listener, is_connect_reported: false });
        id
    }

    /// The connection of a socket.
    pub(crate) fn entry(&mut self, fd: i32) -> Result<&mut Entry, Errno> {
        let Kind::Stream(id) = self.get(fd)?.kind else { return Err(Errno(libc::ENOTCONN)) };
        Ok(self.entries.get_mut(&id).expect("a socket's connection is kept"))
    }

    pub(crate) fn read(&mut self, fd: i32, len_max: usize) -> Outcome<Vec<u8>> {
        let is_read_closed = self.get(fd).is_ok_and(|socket| socket.is_read_closed);
        let entry = match self.entry(fd) {
            Ok(entry) => entry,
            Err(errno) => return Outcome::Failed(errno),
        };
        let mut all = Vec::new();
        while all.len() < len_max {
            match entry.connection.read(len_max - all.len()) {
                Read::Bytes(bytes) => all.extend_from_slice(&bytes),
                _ if !all.is_empty() => break,
                Read::End => return Outcome::Done(all),
                _ if is_read_closed => return Outcome::Done(all),
                Read::Blocked => return Outcome::Waits,
                Read::Closed(reason) => return self.take_error(fd, errno_of(reason)),
            }
        }
        Outcome::Done(all)
    }

    /// An error is reported once; then there is an end.
    fn take_error<T: Default>(&mut self, fd: i32, errno: Errno) -> Outcome<T> {
        let socket = self.sockets.get_mut(&fd).expect("it was found");
        if socket.error.replace(errno).is_some() { Outcome::Done(T::default()) } else { Outcome::Failed(errno) }
    }

    /// Takes as much of `bytes` as there is space for.
    pub(crate) fn write(&mut self, fd: i32, bytes: &mut Bytes) -> Outcome<usize> {
        let entry = match self.entry(fd) {
            Ok(entry) => entry,
            Err(errno) => return Outcome::Failed(errno),
        };
        if matches!(entry.connection.state(), State::SynSent | State::SynReceived) {
            return Outcome::Waits;
        }
        let before = bytes.len();
        match entry.connection.write(bytes) {
            Ok(()) => Outcome::Done(before - bytes.len()),
            Err(WriteError::Blocked) => Outcome::Waits,
            Err(WriteError::Finished) => Outcome::Failed(Errno(libc::EPIPE)),
            Err(WriteError::Closed(reason)) => {
                let socket = self.sockets.get_mut(&fd).expect("it was found");
                let is_told = socket.error.replace(Errno(libc::EPIPE)).is_some();
                Outcome::Failed(if is_told { Errno(libc::EPIPE) } else { errno_of(reason) })
            }
        }
    }

    pub(crate) fn shutdown(&mut self, fd: i32, how: i32) -> Result<(), Errno> {
        let entry = self.entry(fd)?;
        if entry.connection.close_reason().is_some() {
            return Err(Errno(libc::ENOTCONN));
        }
        if how != libc::SHUT_RD {
            entry.connection.finish();
        }
        if how != libc::SHUT_WR {
            self.get(fd)?.is_read_closed = true;
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, fd: i32) -> Result<(), Errno> {
        let socket = self.sockets.remove(&fd).ok_or(Errno(libc::EBADF))?;
        match socket.kind {
            Kind::Fresh => {}
            Kind::Listening { waiting, .. } => {
                for id in waiting {
                    if let Some(entry) = self.entries.get_mut(&id) {
                        entry.connection.abort();
                    }
                }
            }
            Kind::Stream(id) => {
                let entry = self.entries.get_mut(&id).expect("a socket's connection is kept");
                let is_open = !matches!(entry.connection.state(), State::SynSent);
                match socket.options.linger {
                    Some(0) => entry.connection.abort(),
                    _ if is_open => entry.connection.orphan(),
                    _ => entry.connection.abort(),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn set_option(&mut self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        let socket = self.get(fd)?;
        socket.options.set(level, name, value)?;
        let is_nodelay = socket.options.is_nodelay;
        if let Ok(entry) = self.entry(fd) {
            entry.connection.set_nagle(!is_nodelay);
        }
        Ok(())
    }

    /// The events of `poll`.
    pub(crate) fn events(&mut self, fd: i32) -> i16 {
        let has_first = self.first_connected(fd).is_some();
        let Ok(socket) = self.get(fd) else { return libc::POLLNVAL };
        let is_read_closed = socket.is_read_closed;
        match &socket.kind {
            Kind::Fresh => libc::POLLOUT | libc::POLLHUP,
            Kind::Listening { .. } if has_first => libc::POLLIN,
            Kind::Listening { .. } => 0,
            Kind::Stream(_) => {
                let connection = &self.entry(fd).expect("it has one").connection;
                let (state, mut events) = (connection.state(), 0);
                let has_peer_finished = matches!(
                    state,
                    State::CloseWait | State::LastAck | State::Closing | State::TimeWait | State::Closed
                );
                if connection.readable() > 0 || has_peer_finished || is_read_closed {
                    events |= libc::POLLIN;
                }
                if has_peer_finished || is_read_closed {
                    events |= libc::POLLRDHUP;
                }
                let has_finished =
                    !matches!(state, State::SynSent | State::SynReceived | State::Established | State::CloseWait);
                if (connection.send_space() > 0 && state.is_synchronized()) || has_finished {
                    events |= libc::POLLOUT;
                }
                if has_finished && (has_peer_finished || is_read_closed) {
                    events |= libc::POLLHUP;
                }
                if matches!(connection.close_reason(), Some(reason) if reason != tcp::CloseReason::Finished) {
                    events |= libc::POLLERR | libc::POLLHUP;
                }
                events
            }
        }
    }

    // ── Packets and time ─────────────────────────────────────────────────────────────────────────

    /// A packet of the script's remote side.
    pub(crate) fn receive(&mut self, packet: &[u8]) {
        let bytes = Bytes::copy_from_slice(packet);
        // RFC 1122, section 3.2.1.3.
        let is_valid = |ip: &ip::Packet<'_>| {
            let is_own = ip.source == ip.destination || ip.source == self.settings.local;
            !is_own && is_valid_source(ip.source, ip.destination) && !is_group(ip.destination)
        };
        if !ip::Packet::parse(&bytes).is_ok_and(|packet| is_valid(&packet)) {
            return;
        }
        match Arrival::open(&bytes, None, false) {
            Ok(arrival) => self.receive_segment(arrival),
            Err(_) => {
                let error = ip::Packet::parse(&bytes).ok().and_then(|packet| icmp::error_of(&packet));
                let Some(error) = error else { return };
                let now = self.now;
                if let Some(entry) = self.find(&error.tuple) {
                    entry.connection.handle_icmp(now, &error);
                }
            }
        }
        self.flush();
    }

    fn find(&mut self, tuple: &Tuple) -> Option<&mut Entry> {
        let is_it = |entry: &&mut Entry| entry.connection.tuple() == tuple && entry.connection.state() != State::Closed;
        self.entries.values_mut().find(is_it)
    }

    fn receive_segment(&mut self, arrival: Arrival) {
        let now = self.now;
        if let Some(entry) = self.find(&arrival.tuple) {
            return entry.connection.handle_segment(now, arrival);
        }
        let port = arrival.tuple.local.port();
        let listens = |socket: &&mut Socket| {
            matches!(socket.kind, Kind::Listening { .. }) && socket.local.is_some_and(|local| local.port() == port)
        };
        let listener = self.sockets.iter_mut().map(|(fd, socket)| (*fd, socket)).find(|(_, socket)| listens(&socket));
        match listener.map(|listener| (listener, listen::judge(arrival.header.flags))) {
            Some((_, Listening::Dropped)) => {}
            Some(((fd, socket), Listening::Begins)) => {
                let options = socket.options.clone();
                let Kind::Listening { waiting, backlog } = &socket.kind else { unreachable!("it listens") };
                // A full queue drops the SYN, which its sender repeats.
                if waiting.len() < *backlog {
                    self.begin(fd, &arrival, &options);
                }
            }
            _ => self.reset(&arrival),
        }
    }

    fn begin(&mut self, fd: i32, arrival: &Arrival, options: &Options) {
        let (initial, offset) = self.numbers(&arrival.tuple);
        let connection = Connection::accept(self.now, self.config(options, true), arrival, initial, offset);
        let id = self.insert(connection, Some(fd));
        if let Kind::Listening { waiting, .. } = &mut self.get(fd).expect("it listens").kind {
            waiting.push_back(id);
        }
    }

    fn reset(&mut self, arrival: &Arrival) {
        let (mut plan, mut packet) = (Plan::default(), SuperPacket::default());
        if tcp::reply::reset(arrival, &mut plan) {
            plan.seal(&mut packet);
            packet.packets(|packet| self.sent.push_back((self.now, packet.to_vec())));
        }
    }

    /// Sends what may be sent, and forgets connections that have ended.
    pub(crate) fn flush(&mut self) {
        let (now, mut plan, mut packet) = (self.now, Plan::default(), SuperPacket::default());
        for entry in self.entries.values_mut() {
            let first = self.sent.len();
            while entry.connection.poll_plan(now, SEGMENTS_MAX, &mut plan) {
                if let Some(transmission) = plan.transmission() {
                    entry.connection.handle_emitted(now, transmission);
                }
                plan.seal(&mut packet);
                packet.packets(|packet| self.sent.push_back((now, in_order_of_the_kernel(packet))));
            }
            if self.settings.is_push_hidden {
                self.sent.iter_mut().skip(first).for_each(|(_, packet)| hide_push(packet));
            }
            // The calls look at the state.
            while let Some(Event::Connected | Event::Readable | Event::Writable) = entry.connection.poll_event() {}
        }
        let sockets = &mut self.sockets;
        self.entries.retain(|id, entry| {
            let is_over = entry.connection.state() == State::Closed && !entry.connection.has_plan();
            if let Some(listener) = entry.listener.filter(|_| is_over)
                && let Some(Socket { kind: Kind::Listening { waiting, .. }, .. }) = sockets.get_mut(&listener)
            {
                waiting.retain(|waiting| waiting != id);
            }
            let is_held = sockets.values().any(|socket| matches!(socket.kind, Kind::Stream(of) if of == *id));
            !is_over || is_held
        });
    }

    /// When something is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.entries.values().filter_map(|entry| entry.connection.poll_timeout()).min()
    }

    /// Moves the clock, not beyond the next thing that is due; true if that was handled.
    pub(crate) fn advance(&mut self, to: Instant) -> bool {
        let due = self.poll_timeout().filter(|due| *due <= to);
        self.now = self.now.max(due.unwrap_or(to));
        if due.is_some() {
            for entry in self.entries.values_mut() {
                entry.connection.handle_timeout(self.now);
            }
            self.flush();
        }
        due.is_some()
    }
}

/// Clears the flag PSH.
fn hide_push(packet: &mut [u8]) {
    let parsed = ip::Packet::parse(packet).expect("it is ours");
    let (ip_len, segment_len) = (packet.len() - parsed.payload.len(), parsed.payload.len() as u32);
    let pseudo = checksum::pseudo_header(parsed.source, parsed.destination, parsed.protocol, segment_len);
    packet[ip_len + 13] &= !(Flags::PSH.0 as u8);
    wire::tcp::fill_checksum(&mut packet[ip_len..], pseudo);
}

/// Writes the options of a SYN in the order of Linux, which scripts expect byte by byte: RFC 9293,
/// section 3.2, permits any order.
fn in_order_of_the_kernel(packet: &[u8]) -> Vec<u8> {
    let parsed = ip::Packet::parse(packet).expect("it is ours");
    let (header, header_len) = Header::parse(parsed.payload).expect("it is ours");
    if !header.flags.contains(Flags::SYN) {
        return packet.to_vec();
    }
    let ip_len = packet.len() - parsed.payload.len();
    let mut options = Vec::new();
    if let Some(mss) = header.options.mss {
        options.extend_from_slice(&[2, 4]);
        options.extend_from_slice(&mss.to_be_bytes());
    }
    match (header.options.sack_permitted, header.options.timestamps) {
        (true, Some(_)) => options.extend_from_slice(&[4, 2]),
        (true, None) => options.extend_from_slice(&[1, 1, 4, 2]),
        (false, Some(_)) => options.extend_from_slice(&[1, 1]),
        (false, None) => {}
    }
    if let Some(timestamps) = header.options.timestamps {
        options.extend_from_slice(&[8, 10]);
        options.extend_from_slice(&timestamps.value.to_be_bytes());
        options.extend_from_slice(&timestamps.echo.to_be_bytes());
    }
    if let Some(scale) = header.options.window_scale {
        options.extend_from_slice(&[1, 3, 3, scale]);
    }
    let fixed = wire::tcp::HEADER_LEN;
    assert_eq!(options.len(), header_len - fixed, "a SYN has no other option");
    let mut bytes = packet.to_vec();
    bytes[ip_len + fixed..ip_len + header_len].copy_from_slice(&options);
    let segment_len = (bytes.len() - ip_len) as u32;
    let pseudo = checksum::pseudo_header(parsed.source, parsed.destination, parsed.protocol, segment_len);
    wire::tcp::fill_checksum(&mut bytes[ip_len..], pseudo);
    bytes
}
