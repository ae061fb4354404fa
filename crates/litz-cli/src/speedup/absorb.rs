//! Measures the cost of absorbing a batch: the serial part of what the meter counts as opening. A
//! batch is processed in three steps: leasing keys, decrypting ("opening") the packets, and
//! processing ("absorbing") their contents. A real connection without an endpoint receives batches
//! of a scripted peer, and the first and the last step are measured separately.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use net::MonotonicClock;
use quic::session::tls::TlsClient;
use quic::{
    Addresses, Chunk, Connection, Dir, Endpoint, OpenJob, PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX, Plan, SecretSource,
    Side as QuicSide, StreamId, seal,
};
use scripted_peer::ScriptedPeer;
use scripted_peer::cipher::{Cipher, Tls};
use scripted_peer::peer::{Peer, peer_addr, transport};
use units::{Duration, Instant};

use super::bound::median;
use super::run::CHUNK_LEN;

/// Number of measured batches: some milliseconds of work.
const ROUNDS: usize = 400;

/// Number of millisecond steps in which a handshake without a network completes.
const HANDSHAKE_STEPS: usize = 2000;

/// Nanoseconds per packet, for full batches of datagrams of `size` bytes.
///
/// # Errors
/// A message for the user, if there is no connection.
pub(super) fn packet_ns(cipher: Cipher, size: usize) -> Result<f64, String> {
    let (mut client, mut script) = connect(cipher, size)?;
    let clock = MonotonicClock::start();
    let pattern = Bytes::from(vec![7; CHUNK_LEN]);
    let id = StreamId::new(QuicSide::Server, Dir::Uni, 0);
    let batch = (PLAN_BYTES_MAX / size).min(PLAN_DATAGRAMS_MAX);
    let (mut plan, mut job, mut written, mut times_ns) = (Plan::new(), OpenJob::default(), 0, Vec::new());
    let mut now = clock.now();
    for _ in 0..ROUNDS {
        written += script.plan_data(id, written, batch, size, &pattern, &mut plan);
        let mut sealed = Vec::new();
        seal(&plan, &mut sealed);
        let begin = clock.now();
        if !client.begin_open(now, Addresses::of(peer_addr(0)), &sealed, size, &mut job) {
            return Err("the connection in memory was not confirmed".to_owned());
        }
        let prepared = clock.now();
        job.open(&mut sealed);
        let buffer = Bytes::from(sealed);
        let opened = clock.now();
        client.handle_opened(now, &mut job, &buffer);
        let absorbed = clock.now();
        let spent = prepared.saturating_since(begin) + absorbed.saturating_since(opened);
        if plan.packet_count() == batch {
            times_ns.push(spent.as_nanos() as f64 / batch as f64);
        }
        now = absorbed;
        let _once = client.accept(Dir::Uni);
        while let Ok(Chunk::Bytes(_)) = client.read(now, id, usize::MAX) {}
        drain(&mut client, now, &mut plan);
    }
    if client.stats().receive.packets_unauthentic > 0 {
        return Err("a packet of the scripted peer could not be opened".to_owned());
    }
    Ok(median(times_ns))
}

/// Discards what the client sends.
fn drain(client: &mut Connection, now: Instant, plan: &mut Plan) {
    while client.poll_event().is_some() {}
    while client.poll_plan(now, PLAN_DATAGRAMS_MAX, plan) {
        client.handle_emitted(now, &plan.receipt());
    }
}

fn connect(cipher: Cipher, size: usize) -> Result<(Connection, ScriptedPeer), String> {
    let tls = Tls::new(cipher)?;
    let mut peer = Peer::new(&tls, size, 0)?;
    let mut secret = [0; 32];
    net::os_random(&mut secret).map_err(|error| format!("cannot get random bytes: {error}"))?;
    let to_message = |error: quic::BeginError| error.to_string();
    let mut endpoint = Endpoint::new(transport(size, 0), None, SecretSource::new(&secret)).map_err(to_message)?;
    let factory = TlsClient::new(Arc::clone(&tls.client))?;
    let clock = MonotonicClock::start();
    let (start, addresses) = (clock.now(), Addresses::of(peer_addr(0)));
    let mut client = endpoint.connect(start, &factory, "litz.invalid", addresses).map_err(to_message)?;
    let (mut plan, mut sealed) = (Plan::new(), Vec::new());
    for _ in 0..HANDSHAKE_STEPS {
        let now = clock.now();
        client.handle_timeout(now);
        while client.poll_event().is_some() {}
        while client.poll_route().is_some() {}
        while client.poll_plan(now, PLAN_DATAGRAMS_MAX, &mut plan) {
            seal(&plan, &mut sealed);
            client.handle_emitted(now, &plan.receipt());
            peer.handle(0, &sealed, plan.segment_size)?;
        }
        let mut answers = Vec::new();
        peer.poll(|_, batch, stride| answers.push((batch, stride)));
        if answers.is_empty() && peer.can_become_script(1) {
            let script = peer.into_script(1).and_then(|(_, mut scripts)| scripts.pop());
            let script = script.ok_or("the handshake in memory failed")?;
            return Ok((client, script));
        }
        for (batch, stride) in answers {
            client.handle_datagrams(now, addresses, BytesMut::from(&batch[..]), stride);
        }
        #[expect(clippy::disallowed_methods, reason = "both ends wait for their timers, which follow the clock")]
        std::thread::sleep(Duration::from_millis(1).into());
    }
    Err("the handshake in memory does not complete".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_absorbing_is_positive_and_plausible() {
        for cipher in [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
            let ns = packet_ns(cipher, 1472).unwrap();
            assert!(ns > 0.0 && ns < 10_000.0, "{ns}");
        }
    }
}
