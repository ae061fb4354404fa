//! Connection attempts that wait for a decision: to begin a connection, to refuse it, or to let the
//! client prove its address first.

use bytes::BytesMut;
use units::{Ecn, Instant};
use wire::quic::{ConnectionId, PathId, ProtectedHeader, Side, destination};

use super::{BeginError, Client, Endpoint, FirstPacket, first_header};
use crate::addresses::Addresses;
use crate::batch_meta::BatchMeta;
use crate::connection::Connection;
use crate::control::ids::LOCAL_ID_LEN;
use crate::open::opened::Opened;
use crate::open::{OpenContext, open_packet};
use crate::session::SessionFactory;

/// Datagrams of one attempt that are kept: a ClientHello with a large key takes two, and each of them
/// may come twice. Further ones are dropped, and the client sends them again.
pub const INCOMING_DATAGRAMS_MAX: usize = 4;

/// A client's attempt to connect, whose first packet is authentic. Nothing else is kept of it: the TLS
/// handshake has not begun.
pub struct Incoming {
    first: FirstPacket,
    client: Client,
    /// After the first one.
    more: Vec<(BytesMut, Option<Ecn>)>,
}

impl Incoming {
    /// The addresses of the client's packet.
    pub fn addresses(&self) -> Addresses {
        self.first.addresses
    }

    /// Whether the client has proved its address, by a token.
    pub fn is_validated(&self) -> bool {
        self.client.is_validated
    }

    /// The destination of the first packet that the client sent, which it chose at random.
    pub fn original_destination(&self) -> ConnectionId {
        self.client.original_destination
    }

    /// Whether a datagram that begins no other connection belongs to this attempt.
    pub fn is_continued_by(&self, addresses: &Addresses, datagram: &[u8]) -> bool {
        let id = destination(datagram, LOCAL_ID_LEN).and_then(|destination| ConnectionId::new(destination.dcid));
        self.first.addresses.remote == addresses.remote && id == Some(self.first.header.dcid)
    }

    /// Keeps another datagram of the attempt; false if it has [too many](INCOMING_DATAGRAMS_MAX).
    pub fn add(&mut self, datagram: BytesMut, ecn: Option<Ecn>) -> bool {
        let has_space = 1 + self.more.len() < INCOMING_DATAGRAMS_MAX;
        if has_space {
            self.more.push((datagram, ecn));
        }
        has_space
    }
}

impl Endpoint {
    /// Takes a client's first datagram, as [`accept`](Self::accept) does, without beginning the
    /// connection. [`AddressValidation`](crate::AddressValidation) has no effect: the caller decides.
    ///
    /// # Errors
    /// As `accept`, except that no client must prove its address first.
    pub fn hold(
        &mut self,
        now: Instant,
        addresses: Addresses,
        datagram: BytesMut,
        ecn: Option<Ecn>,
    ) -> Result<Incoming, BeginError> {
        let factory = self.server.clone().ok_or(BeginError::NotListening)?;
        let header = first_header(&datagram)?;
        // A token counts once, so not if the packet is forged; and the packet may be one of a connection
        // that another endpoint behind this address has.
        if !self.is_authentic(&*factory, &header, &datagram) {
            return Err(BeginError::NotInitial);
        }
        let client = self.identify(now, addresses.remote, &header, &datagram[header.token.clone()])?;
        Ok(Incoming { first: FirstPacket { addresses, header, datagram, ecn }, client, more: Vec::new() })
    }

    fn is_authentic(&self, factory: &dyn SessionFactory, header: &ProtectedHeader, datagram: &[u8]) -> bool {
        let keys = factory.initial_keys(&header.dcid, Side::Server, header.version);
        let mut context = OpenContext {
            local_id_len: LOCAL_ID_LEN,
            levels: [Some(keys.open), None],
            version: header.version,
            other_initial: None,
            data: None,
            largest: [None; 3],
            path: PathId::ZERO,
            max_path: None,
            ignore_fixed_bit: self.config.grease,
        };
        // Opening changes it.
        let mut copy = datagram.to_vec();
        let mut opened = Opened::default();
        open_packet(&mut context, &mut copy, 0, &mut opened);
        !opened.packets.is_empty()
    }

    /// Begins the connection of an attempt, and handles its datagrams.
    ///
    /// # Errors
    /// If a session cannot be started.
    pub fn accept_held(&mut self, now: Instant, incoming: Incoming) -> Result<Connection, BeginError> {
        let Incoming { first, client, more } = incoming;
        let addresses = first.addresses;
        let mut connection = self.begin(now, first, &client)?;
        for (datagram, ecn) in more {
            let stride = datagram.len();
            connection.handle_datagrams(now, addresses, datagram, BatchMeta { stride, ecn });
        }
        Ok(connection)
    }

    /// The packet that refuses an attempt (CONNECTION_REFUSED), for the client.
    pub fn refuse_held(&mut self, incoming: &Incoming) -> Vec<u8> {
        let mut packet = Vec::new();
        let is_refused = self.refuse(&incoming.first.datagram, &mut packet);
        debug_assert!(is_refused, "it is a first packet");
        packet
    }

    /// The Retry packet that lets the client of an attempt prove its address. None if it has done so.
    pub fn retry_held(&mut self, now: Instant, incoming: &Incoming) -> Option<Vec<u8>> {
        if incoming.is_validated() {
            return None;
        }
        self.retry(now, incoming.first.addresses.remote, &incoming.first.header)
    }
}
