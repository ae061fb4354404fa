//! What ciphers and copies cost alone: keys as the library's, on batches laid out as the library lays them out.
//!
//! The ends of a run do this now and then between their calls, so that it happens under the same conditions: the other end
//! at work on the other processor, which may share a core with this one, and the caches full of a connection's data.

use litz::LAP_MAX;
use net::MonotonicClock;
use quic::session::{LevelKeys, TAG_LEN};
use quic::{LOCAL_ID_LEN, PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX, PathId};
use units::Duration;

use super::fit::median;
use super::row::End;

/// The application's chunks and its reading buffer.
pub(crate) const CHUNK_LEN: usize = 64 * 1024;

/// Of a short header: the first byte, our connection ID, three bytes of packet number.
const NUMBER_LEN: usize = 3;
const HEADER_LEN: usize = 1 + LOCAL_ID_LEN + NUMBER_LEN;

/// A short header with a number of [`NUMBER_LEN`] bytes (RFC 9000, section 17.3.1).
const FIRST_BYTE: u8 = 0x40 | (NUMBER_LEN as u8 - 1);

/// Of a STREAM frame with type, stream, offset and length, far into a transfer.
const FRAME_HEADER_LEN: usize = 1 + 1 + 8 + 2;

/// The header cipher's sample lies behind four bytes of number (RFC 9001, section 5.4.2).
const SAMPLE_AT: usize = 1 + LOCAL_ID_LEN + 4;
const SAMPLE_LEN: usize = 16;

/// Nanoseconds a packet of one size.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Alone {
    pub(crate) copy: f64,
    pub(crate) cipher: f64,
    pub(crate) header_cipher: f64,
}

/// Application bytes in a datagram of `size` bytes.
pub(crate) const fn payload_len(size: usize) -> usize {
    size - HEADER_LEN - FRAME_HEADER_LEN - TAG_LEN
}

/// Datagrams of `size` bytes in a full batch.
pub(crate) fn batch_len(size: usize) -> usize {
    (PLAN_BYTES_MAX / size).min(PLAN_DATAGRAMS_MAX)
}

/// AES-128-GCM keys as a handshake makes them.
fn aes_keys(side: rustls::Side) -> Result<LevelKeys, String> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let suite = provider
        .cipher_suites
        .iter()
        .find(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256)
        .and_then(|suite| suite.tls13())
        .and_then(rustls::Tls13CipherSuite::quic_suite)
        .ok_or("the TLS library lacks AES-128-GCM")?;
    Ok(suite.keys(b"calibration", side, rustls::quic::Version::V1).into())
}

/// Does to a batch of its own what a stage does to those of the connection, a part of it at a time.
pub(crate) struct Calibration {
    end: End,
    size: usize,
    keys: LevelKeys,
    clock: MonotonicClock,
    /// The application's chunk, or what it reads into.
    plain: Vec<u8>,
    /// What arrives: opening is done in place, so each round opens a copy.
    sealed: Vec<u8>,
    batch: Vec<u8>,
    /// For each packet, round after round.
    passes_ns: [Vec<f64>; 3],
    spent: Duration,
    failed: bool,
}

impl Calibration {
    /// For datagrams of `size` bytes.
    ///
    /// # Errors
    /// If the TLS library has not the cipher.
    pub(crate) fn new(end: End, size: usize) -> Result<Self, String> {
        let len = batch_len(size) * size;
        let mut sealed = vec![7; len];
        let sender_keys = aes_keys(rustls::Side::Client)?;
        for (number, packet) in sealed.chunks_exact_mut(size).enumerate() {
            packet[0] = FIRST_BYTE;
            seal_packet(&sender_keys, number as u64, packet);
            protect_header(&sender_keys, packet);
        }
        let side = if end == End::Sending { rustls::Side::Client } else { rustls::Side::Server };
        Ok(Self {
            end,
            size,
            keys: aes_keys(side)?,
            clock: MonotonicClock::start(),
            plain: vec![7; CHUNK_LEN],
            batch: sealed.clone(),
            sealed,
            passes_ns: Default::default(),
            spent: Duration::ZERO,
            failed: false,
        })
    }

    /// Measures a batch once: all that the stage does, then less and less of it, each packet at a time as the stage does.
    /// Well below a millisecond.
    pub(crate) fn round(&mut self) {
        let begin = self.clock.now();
        let count = batch_len(self.size) as f64;
        // The stage finds its buffers in the cache, where the batch before has left them: ours have been away.
        match self.end {
            End::Sending => self.seal(0),
            End::Receiving => self.copy_out(),
        }
        for pass in 0..self.passes_ns.len() {
            if self.end == End::Receiving {
                self.batch.copy_from_slice(&self.sealed);
            }
            let start = self.clock.now();
            match self.end {
                End::Sending => self.seal(pass),
                End::Receiving if pass == 2 => self.copy_out(),
                End::Receiving => self.open(pass),
            }
            let took = self.clock.now().saturating_since(start);
            self.passes_ns[pass].push(took.as_nanos() as f64 / count);
        }
        let took = self.clock.now().saturating_since(begin);
        // The meter books a longer one to nobody, too.
        if took <= LAP_MAX {
            self.spent += took;
        }
    }

    /// The time that rounds took.
    pub(crate) fn spent(&self) -> Duration {
        self.spent
    }

    /// The medians, so that a round in which the processor was taken away does not count.
    ///
    /// # Errors
    /// If what was sealed did not open: then nothing was measured.
    pub(crate) fn result(&self) -> Result<Alone, String> {
        if self.failed {
            return Err("what was sealed did not open".to_owned());
        }
        let passes_ns = [0, 1, 2].map(|pass| median(&self.passes_ns[pass]));
        // Nothing costs less than nothing, whatever a busy machine makes of a small difference.
        let more = |with: f64, without: f64| (with - without).max(0.0);
        Ok(match self.end {
            End::Sending => {
                let [copy, sealed, protected] = passes_ns;
                Alone { copy, cipher: more(sealed, copy), header_cipher: more(protected, sealed) }
            }
            End::Receiving => {
                let [header_cipher, opened, copy] = passes_ns;
                Alone { copy, cipher: more(opened, header_cipher), header_cipher }
            }
        })
    }

    /// Copies each packet; seals it from pass 1 on; protects its header in pass 2.
    fn seal(&mut self, pass: usize) {
        let payload_len = payload_len(self.size);
        let mut from = 0;
        for (number, packet) in self.batch.chunks_exact_mut(self.size).enumerate() {
            let payload = &mut packet[HEADER_LEN + FRAME_HEADER_LEN..self.size - TAG_LEN];
            payload.copy_from_slice(&self.plain[from..from + payload_len]);
            from = (from + payload_len) % (CHUNK_LEN - payload_len);
            if pass >= 1 {
                seal_packet(&self.keys, number as u64, packet);
            }
            if pass >= 2 {
                protect_header(&self.keys, packet);
            }
        }
    }

    /// Takes the protection off each packet's header; opens it from pass 1 on.
    fn open(&mut self, pass: usize) {
        for (number, packet) in self.batch.chunks_exact_mut(self.size).enumerate() {
            let (head, sample) = packet.split_at_mut(SAMPLE_AT);
            let (first, rest) = head.split_at_mut(1);
            self.keys.open.header.unprotect(&sample[..SAMPLE_LEN], &mut first[0], &mut rest[LOCAL_ID_LEN..]);
            if pass >= 1 {
                let (header, payload) = packet.split_at_mut(HEADER_LEN);
                self.failed |= self.keys.open.packet.open(PathId::ZERO, number as u64, header, payload).is_err();
            }
        }
    }

    /// Copies each packet's payload to where the application reads it.
    fn copy_out(&mut self) {
        let payload_len = payload_len(self.size);
        let mut to = 0;
        for packet in self.batch.chunks_exact(self.size) {
            let payload = &packet[HEADER_LEN + FRAME_HEADER_LEN..self.size - TAG_LEN];
            self.plain[to..to + payload_len].copy_from_slice(payload);
            to = (to + payload_len) % (CHUNK_LEN - payload_len);
        }
    }
}

/// Encrypts a packet in its place.
fn seal_packet(keys: &LevelKeys, number: u64, packet: &mut [u8]) {
    let (header, rest) = packet.split_at_mut(HEADER_LEN);
    let (payload, tag) = rest.split_at_mut(rest.len() - TAG_LEN);
    tag.copy_from_slice(&keys.seal.packet.seal(PathId::ZERO, number, header, payload));
}

fn protect_header(keys: &LevelKeys, packet: &mut [u8]) {
    let (head, sample) = packet.split_at_mut(SAMPLE_AT);
    let (first, rest) = head.split_at_mut(1);
    let number = &mut rest[LOCAL_ID_LEN..LOCAL_ID_LEN + NUMBER_LEN];
    keys.seal.header.protect(&sample[..SAMPLE_LEN], &mut first[0], number);
}

/// What one reading of the clock costs, in nanoseconds.
pub(crate) fn reading_ns() -> f64 {
    const ROUNDS: usize = 200;
    const READINGS: u32 = 1000;
    let clock = MonotonicClock::start();
    let rounds_ns: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let start = clock.now();
            for _ in 0..READINGS {
                std::hint::black_box(clock.now());
            }
            clock.now().saturating_since(start).as_nanos() as f64 / f64::from(READINGS)
        })
        .collect();
    median(&rounds_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(end: End, size: usize) -> Alone {
        let mut calibration = Calibration::new(end, size).unwrap();
        (0..200).for_each(|_| calibration.round());
        assert!(calibration.spent() > Duration::ZERO);
        calibration.result().unwrap()
    }

    #[test]
    fn larger_packets_cost_more_and_everything_costs_something() {
        for end in [End::Sending, End::Receiving] {
            let (small, large) = (measured(end, 1200), measured(end, 8972));
            assert!(small.copy > 0.0 && small.cipher > 0.0 && small.header_cipher > 0.0, "{small:?}");
            assert!(large.cipher > 2.0 * small.cipher && large.copy > small.copy, "{small:?} {large:?}");
        }
    }

    #[test]
    fn a_batch_that_does_not_open_is_no_measurement() {
        let mut calibration = Calibration::new(End::Receiving, 1472).unwrap();
        calibration.sealed[100] ^= 1;
        calibration.round();
        assert!(calibration.result().is_err());
    }

    #[test]
    fn a_batch_is_what_the_system_takes() {
        assert_eq!((batch_len(1472), batch_len(8972), batch_len(500)), (44, 7, 64));
        assert_eq!(payload_len(1472), 1472 - 12 - 12 - 16);
    }
}
