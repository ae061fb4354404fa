//! A hostile peer that sends or takes 0-RTT.

use quic::session::deterministic::Tickets;

use super::*;

impl Hostile {
    /// A client with a ticket of `tickets`. Its 0-RTT keys are there once its first flight is.
    pub fn client_with_tickets(seed: u64, tickets: &Tickets) -> Self {
        let mut rng = Rng::from_seed(seed).split("hostile ids");
        let (local, first) = (random_id(&mut rng), random_id(&mut rng));
        let factory = DeterministicFactory::new(Side::Client, rng.split("session")).with_tickets(tickets);
        Self::with_factory(&factory, Side::Client, local, first, &encode(&client_parameters(local)))
    }

    /// A server for the client whose first datagram this is. It takes 0-RTT from tickets that it
    /// knows, and answers with these parameters.
    pub fn server_with_tickets(
        seed: u64,
        first_datagram: &[u8],
        tickets: &Tickets,
        change: impl FnOnce(&mut TransportParameters),
    ) -> Self {
        let Ok(Parsed::Protected(header)) = parse_packet(first_datagram, ID_LEN) else {
            panic!("not an Initial packet")
        };
        let mut rng = Rng::from_seed(seed).split("hostile ids");
        let local = random_id(&mut rng);
        let mut parameters = client_parameters(local);
        parameters.original_destination_connection_id = Some(header.dcid);
        change(&mut parameters);
        let factory = DeterministicFactory::new(Side::Server, rng.split("session")).with_tickets(tickets);
        let mut server = Self::with_factory(&factory, Side::Server, local, header.dcid, &encode(&parameters));
        server.remote_id = header.scid;
        server
    }

    /// A 0-RTT packet with this payload.
    pub fn early_packet(&mut self, payload: &[u8], overrides: SealOverrides) -> Vec<u8> {
        let keys = self.session.early_keys().expect("the first flight has been made");
        let kept = self.keys[2].replace(LevelKeys { seal: keys.clone(), open: keys });
        let packet = self.packet_with(Space::Data, payload, SealOverrides { zero_rtt: true, ..overrides });
        self.keys[2] = kept;
        packet
    }
}

impl HostilePair {
    /// With a server as victim that has taken 0-RTT from the hostile client, whose second flight is
    /// still to come.
    pub fn with_early_server(config: TransportConfig) -> Self {
        let (rng, tickets) = (Rng::from_seed(1).split("victim"), Tickets::default());
        let promised = encode(&client_parameters(ConnectionId::EMPTY));
        tickets.issue(5, &promised, &promised);
        let factory = DeterministicFactory::new(Side::Server, rng.split("session")).with_tickets(&tickets);
        let victim = Node::new(Side::Server, config, &rng, Some(std::sync::Arc::new(factory)));
        let hostile = Hostile::client_with_tickets(7, &tickets);
        let mut pair = Self { now: Instant::ZERO, victim, hostile, victim_bytes: BTreeMap::new() };
        for datagram in pair.hostile.flight() {
            pair.deliver(&datagram);
        }
        pair
    }

    /// Sends one 0-RTT packet with this payload.
    pub fn send_early(&mut self, payload: &[u8]) {
        let packet = self.hostile.early_packet(payload, SealOverrides::default());
        self.deliver(&packet);
    }
}
