//! Divides the cost of a received batch into a cost per packet and a cost per batch. The library
//! decrypts all packets of a batch, then processes ("absorbs") their contents. Bulk data is
//! processed as one packet run, so this serial part costs the same for any number of packets. Two
//! connections with real keys, but without a network, exchange batches of different lengths. A line
//! fitted to the times gives the cost per batch as its intercept.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use litz::identity::{self, KeyPair};
use net::MonotonicClock;
use quic::session::tls::{TlsClient, TlsServer};
use quic::{
    Addresses, Chunk, Connection, Dir, Endpoint, PLAN_DATAGRAMS_MAX, Plan, ReceiveBuffer, SecretSource, StreamId,
    TransportConfig, seal,
};
use units::{Duration, Instant};

use super::calibrate::{CHUNK_LEN, batch_len};
use super::fit::{Fit, median};

/// Number of batches of each length.
const ROUNDS: usize = 150;

/// Number of exchanges in which a handshake completes.
const HANDSHAKE_ROUNDS: usize = 20;

/// Simulated time between two batches, in which the pacer's bucket refills.
const STEP: Duration = Duration::from_millis(1);

/// Nanoseconds to absorb a batch of datagrams of `size` bytes.
pub(crate) fn batch_ns(size: usize) -> Result<f64, String> {
    let full = batch_len(size);
    let mut lens = [full, full.div_ceil(2), full.div_ceil(4), 1.max(full / 8)].to_vec();
    lens.dedup();
    let mut pair = Pair::connect(size)?;
    let mut times_ns = vec![Vec::with_capacity(ROUNDS); lens.len()];
    for _ in 0..ROUNDS {
        for (len, times_ns) in lens.iter().zip(&mut times_ns) {
            times_ns.extend(pair.step(*len)?);
        }
    }
    let points: Vec<_> = lens.iter().zip(&times_ns).map(|(len, times_ns)| (*len as f64, median(times_ns))).collect();
    if times_ns.iter().any(Vec::is_empty) {
        return Err("the connection sent no full batches".to_owned());
    }
    // In this fit, "packet" stands for the batch and "byte" for the packet.
    Ok(Fit::through(&points).packet_ns.max(0.0))
}

/// Two ends of a connection, and the clock that measures one of them.
struct Pair {
    client: Connection,
    server: Connection,
    now: Instant,
    clock: MonotonicClock,
    plan: Plan,
    sealed: Vec<u8>,
    chunk: Bytes,
    id: Option<StreamId>,
}

/// A batch in a receive buffer.
struct Arrived(Vec<u8>);

impl ReceiveBuffer for Arrived {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn freeze(self) -> Bytes {
        self.0.into()
    }
}

impl Pair {
    fn connect(size: usize) -> Result<Self, String> {
        let to_message = |error: &dyn std::fmt::Display| error.to_string();
        let config = TransportConfig::default().with_datagram_size(size);
        let key = KeyPair::generate().map_err(|error| to_message(&error))?;
        let server_tls = identity::server_config(&key, ["litz-profile/1"]).map_err(|error| to_message(&error))?;
        let client_tls = identity::client_config(&key, &[key.public().fingerprint()], ["litz-profile/1"])
            .map_err(|error| to_message(&error))?
            .config;
        let remote = SocketAddr::from(([192, 0, 2, 1], 1));
        let end = |config, factory, secret| Endpoint::new(config, factory, SecretSource::new(&[secret; 32]));
        let mut dialling = end(config.clone(), None, 1).map_err(|error| to_message(&error))?;
        let server_factory = Arc::new(TlsServer::new(server_tls)?);
        let mut listening = end(config, Some(server_factory), 2).map_err(|error| to_message(&error))?;
        let (now, mut plan, mut sealed) = (Instant::ZERO, Plan::new(), Vec::new());
        let factory = TlsClient::new(client_tls)?;
        let mut client = dialling
            .connect(now, &factory, "litz.invalid", Addresses::of(remote))
            .map_err(|error| to_message(&error))?;
        if !client.poll_plan(now, 1, &mut plan) {
            return Err("the client sends nothing".to_owned());
        }
        seal(&plan, &mut sealed);
        client.handle_emitted(now, &plan.receipt());
        let addresses = Addresses::of(remote);
        let first = BytesMut::from(&sealed[..plan.segment_size.min(sealed.len())]);
        let server = listening.accept(now, addresses, first, None, false).map_err(|error| to_message(&error))?;
        let chunk = vec![7; CHUNK_LEN].into();
        let clock = MonotonicClock::start();
        let mut pair = Self { client, server, now, clock, plan, sealed, chunk, id: None };
        for _ in 0..HANDSHAKE_ROUNDS {
            pair.now += STEP;
            while pair.carry(false, usize::MAX).is_some() {}
            while pair.carry(true, usize::MAX).is_some() {}
            pair.settle();
        }
        pair.id = pair.client.open(Dir::Uni);
        if pair.id.is_none() { Err("the handshake failed".to_owned()) } else { Ok(pair) }
    }

    /// Lets the client send one batch of at most `len` datagrams, and both ends all their other
    /// packets. Returns the time that the batch took, if it was full.
    fn step(&mut self, len: usize) -> Result<Option<f64>, String> {
        let id = self.id.ok_or("no stream")?;
        self.now += STEP;
        while self.client.write(id, self.chunk.clone()).is_ok() {}
        let carried = self.carry(true, len);
        let _once = self.server.accept(Dir::Uni);
        while let Ok(Chunk::Bytes(_)) = self.server.read(self.now, id, usize::MAX) {}
        while self.carry(false, usize::MAX).is_some() {}
        self.settle();
        Ok(carried.filter(|(count, _)| *count == len).map(|(_, took_ns)| took_ns))
    }

    /// Transfers a batch from or to the client. Returns the number of datagrams, and the time that
    /// the other end took.
    fn carry(&mut self, from_client: bool, len_max: usize) -> Option<(usize, f64)> {
        let (from, to) =
            if from_client { (&mut self.client, &mut self.server) } else { (&mut self.server, &mut self.client) };
        if !from.poll_plan(self.now, len_max.min(PLAN_DATAGRAMS_MAX), &mut self.plan) {
            return None;
        }
        seal(&self.plan, &mut self.sealed);
        from.handle_emitted(self.now, &self.plan.receipt());
        let source = to.addresses().remote;
        let arrived = Arrived(self.sealed.clone());
        let start = self.clock.now();
        to.handle_datagrams(self.now, Addresses::of(source), arrived, self.plan.segment_size);
        let took = self.clock.now().saturating_since(start);
        Some((self.plan.datagram_count(), took.as_nanos() as f64))
    }

    /// Handles timers and events, as a driver does after every input.
    fn settle(&mut self) {
        for end in [&mut self.client, &mut self.server] {
            end.handle_timeout(self.now);
            while end.poll_event().is_some() {}
            while end.poll_route().is_some() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_batches_arrive_and_absorbing_one_costs_less_than_opening_it() {
        let mut pair = Pair::connect(1472).unwrap();
        let times_ns: Vec<f64> = (0..ROUNDS).filter_map(|_| pair.step(44).unwrap()).collect();
        assert!(times_ns.len() > ROUNDS / 2, "{} of {ROUNDS} batches were full", times_ns.len());
        assert!(batch_ns(1472).unwrap() < median(&times_ns));
    }
}
