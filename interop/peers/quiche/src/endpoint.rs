//! Sockets, and the connections on them.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use quiche::{Config, Connection, ConnectionId, RecvInfo};
use ring::rand::{SecureRandom, SystemRandom};

use crate::stream::Stream;

pub type Failed = Box<dyn Error + Send + Sync>;

const DATAGRAM_MAX: usize = 1472;

/// Datagrams sent for one connection before the next one has its turn.
const DATAGRAMS_PER_TURN: usize = 256;

/// A connection and its streams.
pub struct Peer {
    pub quic: Connection,
    pub streams: BTreeMap<u64, Stream>,
    /// At most so many bytes of each answer are read, until a client has migrated.
    pub limit: u64,
}

pub struct Endpoint {
    poll: Poll,
    events: Events,
    pub sockets: Vec<UdpSocket>,
    pub config: Config,
    pub peers: Vec<Peer>,
    /// A server's connections by their connection IDs.
    by_id: HashMap<Vec<u8>, usize>,
    retry: bool,
    is_server: bool,
}

/// Random bytes.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
    bytes
}

/// The settings of both roles.
pub fn config() -> Result<Config, Failed> {
    let mut config = Config::new(quiche::PROTOCOL_VERSION)?;
    config.set_application_protos(&[b"litz-interop"])?;
    config.set_max_idle_timeout(20_000);
    config.set_max_recv_udp_payload_size(DATAGRAM_MAX);
    config.set_max_send_udp_payload_size(DATAGRAM_MAX);
    config.discover_pmtu(true);
    config.set_initial_max_data(16 << 20);
    config.set_initial_max_stream_data_bidi_local(8 << 20);
    config.set_initial_max_stream_data_bidi_remote(8 << 20);
    config.set_initial_max_streams_bidi(128);
    config.set_active_connection_id_limit(4);
    config.enable_pacing(false);
    config.enable_early_data();
    Ok(config)
}

/// Whether streams can be used, perhaps in 0-RTT.
fn can_send(quic: &Connection) -> bool {
    quic.is_established() || quic.is_in_early_data()
}

impl Endpoint {
    pub fn new(config: Config, port: u16, is_server: bool, retry: bool) -> Result<Self, Failed> {
        let (poll, events) = (Poll::new()?, Events::with_capacity(16));
        let (sockets, peers, by_id) = (Vec::new(), Vec::new(), HashMap::new());
        let mut endpoint = Self { poll, events, sockets, config, peers, by_id, retry, is_server };
        endpoint.open(port)?;
        Ok(endpoint)
    }

    /// Opens another socket, and returns its address.
    pub fn open(&mut self, port: u16) -> Result<SocketAddr, Failed> {
        let mut socket = UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
        self.poll.registry().register(&mut socket, Token(self.sockets.len()), Interest::READABLE)?;
        let address = socket.local_addr()?;
        self.sockets.push(socket);
        Ok(address)
    }

    pub fn connect(&mut self, server: SocketAddr, session: Option<&[u8]>) -> Result<(), Failed> {
        let (id, local) = (random::<16>(), self.sockets[0].local_addr()?);
        let mut quic =
            quiche::connect(Some("localhost"), &ConnectionId::from_ref(&id), local, server, &mut self.config)?;
        if let Some(session) = session {
            quic.set_session(session)?;
        }
        self.peers = vec![Peer { quic, streams: BTreeMap::new(), limit: u64::MAX }];
        Ok(())
    }

    /// Sends, waits for something to happen, at most `patience`, and receives.
    pub fn turn(&mut self, patience: Duration) -> Result<(), Failed> {
        for index in 0..self.peers.len() {
            self.send(index)?;
        }
        let timeout = self.peers.iter().filter_map(|peer| peer.quic.timeout()).min();
        match self.poll.poll(&mut self.events, Some(timeout.map_or(patience, |timeout| timeout.min(patience)))) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        for peer in &mut self.peers {
            if peer.quic.timeout() == Some(Duration::ZERO) {
                peer.quic.on_timeout();
            }
        }
        for index in 0..self.sockets.len() {
            self.receive(index)?;
        }
        for index in 0..self.peers.len() {
            self.serve(index)?;
        }
        Ok(())
    }

    fn send(&mut self, index: usize) -> Result<(), Failed> {
        let peer = &mut self.peers[index];
        if can_send(&peer.quic) {
            // A stream that the other side has ended is not ours to save.
            peer.streams.retain(|id, stream| stream.is_idle || stream.send(*id, &mut peer.quic).is_ok());
        }
        let mut buffer = [0; DATAGRAM_MAX];
        for _ in 0..DATAGRAMS_PER_TURN {
            let (len, info) = match peer.quic.send(&mut buffer) {
                Ok(sent) => sent,
                Err(quiche::Error::Done) => break,
                // The connection fails, and not the whole server.
                Err(error) => {
                    eprintln!("sending fails: {error}");
                    let _is_closed_already = peer.quic.close(false, 1, b"sending fails").is_err();
                    break;
                }
            };
            let socket = self.sockets.iter().find(|socket| socket.local_addr().is_ok_and(|at| at == info.from));
            // A full buffer loses the datagram; a server that restarts refuses it.
            let _is_lost = socket.ok_or("a path without a socket")?.send_to(&buffer[..len], info.to).is_err();
        }
        Ok(())
    }

    fn receive(&mut self, socket: usize) -> Result<(), Failed> {
        let mut buffer = [0; 65_535];
        let to = self.sockets[socket].local_addr()?;
        while let Ok((len, from)) = self.sockets[socket].recv_from(&mut buffer) {
            let datagram = &mut buffer[..len];
            let Some(index) = self.find(datagram, from, to, socket)? else { continue };
            // What quiche does not take is dropped.
            if let Err(error) = self.peers[index].quic.recv(datagram, RecvInfo { from, to }) {
                eprintln!("a datagram of {len} bytes from {from} is dropped: {error}");
            }
        }
        Ok(())
    }

    /// The connection of a datagram; a server may begin one.
    fn find(
        &mut self,
        datagram: &mut [u8],
        from: SocketAddr,
        to: SocketAddr,
        socket: usize,
    ) -> Result<Option<usize>, Failed> {
        if !self.is_server {
            return Ok(Some(0));
        }
        let Ok(header) = quiche::Header::from_slice(datagram, 16) else { return Ok(None) };
        if let Some(index) = self.by_id.get(&header.dcid.to_vec()) {
            return Ok(Some(*index));
        }
        if header.ty != quiche::Type::Initial {
            return Ok(None);
        }
        let mut reply = [0; DATAGRAM_MAX];
        if !quiche::version_is_supported(header.version) {
            let len = quiche::negotiate_version(&header.scid, &header.dcid, &mut reply)?;
            self.sockets[socket].send_to(&reply[..len], from)?;
            return Ok(None);
        }
        let token = header.token.clone().unwrap_or_default();
        let new_id = random::<16>();
        let new_id = ConnectionId::from_ref(&new_id);
        if self.retry && token.is_empty() {
            // The token is the first connection ID: nothing here has to be secret.
            let (version, token) = (header.version, header.dcid.to_vec());
            let len = quiche::retry(&header.scid, &header.dcid, &new_id, &token, version, &mut reply)?;
            self.sockets[socket].send_to(&reply[..len], from)?;
            return Ok(None);
        }
        // After a Retry the connection keeps the ID that the Retry gave it.
        let (id, first) =
            if self.retry { (header.dcid.clone(), Some(ConnectionId::from_vec(token))) } else { (new_id, None) };
        let quic = quiche::accept(&id, first.as_ref(), to, from, &mut self.config)?;
        self.by_id.insert(id.to_vec(), self.peers.len());
        self.by_id.insert(header.dcid.to_vec(), self.peers.len());
        self.peers.push(Peer { quic, streams: BTreeMap::new(), limit: u64::MAX });
        Ok(Some(self.peers.len() - 1))
    }

    /// Reads the streams, and gives the other side connection IDs to migrate with.
    fn serve(&mut self, index: usize) -> Result<(), Failed> {
        let peer = &mut self.peers[index];
        if !can_send(&peer.quic) {
            return Ok(());
        }
        while peer.quic.scids_left() > 0 {
            let id = random::<16>();
            peer.quic.new_scid(&ConnectionId::from_ref(&id), u128::from_be_bytes(random()), false)?;
            self.by_id.insert(id.to_vec(), index);
        }
        for id in peer.quic.readable() {
            if self.is_server {
                peer.streams.entry(id).or_insert_with(Stream::incoming);
            }
            let Some(stream) = peer.streams.get_mut(&id) else { continue };
            if stream.receive(id, &mut peer.quic, peer.limit).is_err() {
                peer.streams.remove(&id);
            }
        }
        if self.is_server {
            peer.streams.retain(|_, stream| !(stream.is_idle && stream.is_finished));
        }
        Ok(())
    }
}
