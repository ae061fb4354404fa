//! Measures the cost of ciphers and copies separately, with the library's keys and batch layout.
//! The ends of a run calibrate between their calls, so that the conditions are the same: the other
//! end is busy on the other processor, which may share a core with this one, and the caches contain
//! the connection's data.

use litz::LAP_MAX;
use net::MonotonicClock;
use quic::session::{LevelKeys, TAG_LEN};
use quic::{LOCAL_ID_LEN, PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX, PathId};
use units::Duration;

use super::fit::median;
use super::row::End;

/// Size of the application's chunks and of its read buffer.
pub(crate) const CHUNK_LEN: usize = 64 * 1024;

/// Parts of a short header: the first byte, the connection ID, three bytes of packet number.
const NUMBER_LEN: usize = 3;
const HEADER_LEN: usize = 1 + LOCAL_ID_LEN + NUMBER_LEN;

/// A short header with a number of [`NUMBER_LEN`] bytes (RFC 9000, section 17.3.1).
const FIRST_BYTE: u8 = 0x40 | (NUMBER_LEN as u8 - 1);

/// A STREAM frame header late in a transfer: type, stream ID, offset and length.
const FRAME_HEADER_LEN: usize = 1 + 1 + 8 + 2;

/// The sample of header protection follows four bytes of packet number (RFC 9001, section 5.4.2).
const SAMPLE_AT: usize = 1 + LOCAL_ID_LEN + 4;
const SAMPLE_LEN: usize = 16;

/// Costs measured separately, in nanoseconds per packet of one size.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SeparateCosts {
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

/// AES-128-GCM keys as a handshake creates them.
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

/// Performs parts of an activity on its own batch, one part at a time.
pub(crate) struct Calibration {
    end: End,
    size: usize,
    keys: LevelKeys,
    clock: MonotonicClock,
    /// The application's chunk, or its read buffer.
    plain: Vec<u8>,
    /// The received batch. Decryption is in place, so each round decrypts a copy.
    sealed: Vec<u8>,
    batch: Vec<u8>,
    /// Nanoseconds per packet, of each round.
    passes_ns: [Vec<f64>; 3],
    spent: Duration,
    failed: bool,
}

impl Calibration {
    /// Prepares a calibration for datagrams of `size` bytes.
    ///
    /// # Errors
    /// If the TLS library lacks the cipher.
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

    /// Measures a batch once: all parts of the activity, then fewer and fewer of them, packet by
    /// packet as the activity does. Takes well below a millisecond.
    pub(crate) fn round(&mut self) {
        let begin = self.clock.now();
        let count = batch_len(self.size) as f64;
        // The activity finds its buffers in the cache. These buffers may have been evicted, so they
        // are touched first.
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
        // The meter ignores longer interruptions too.
        if took <= LAP_MAX {
            self.spent += took;
        }
    }

    /// Time spent on rounds so far.
    pub(crate) fn spent(&self) -> Duration {
        self.spent
    }

    /// The medians, so that a preempted round does not matter.
    ///
    /// # Errors
    /// If a sealed packet could not be opened: then the measurement is invalid.
    pub(crate) fn result(&self) -> Result<SeparateCosts, String> {
        if self.failed {
            return Err("a sealed packet could not be opened".to_owned());
        }
        let passes_ns = [0, 1, 2].map(|pass| median(&self.passes_ns[pass]));
        // On a busy machine a small difference can be negative.
        let more = |with: f64, without: f64| (with - without).max(0.0);
        Ok(match self.end {
            End::Sending => {
                let [copy, sealed, protected] = passes_ns;
                SeparateCosts { copy, cipher: more(sealed, copy), header_cipher: more(protected, sealed) }
            }
            End::Receiving => {
                let [header_cipher, opened, copy] = passes_ns;
                SeparateCosts { copy, cipher: more(opened, header_cipher), header_cipher }
            }
        })
    }

    /// Copies each packet; from pass 1 on also seals it; in pass 2 also protects its header.
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

    /// Removes each packet's header protection; from pass 1 on also opens the packet.
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

    /// Copies each packet's payload to the application's buffer.
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

/// Encrypts a packet in place.
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

/// The cost of reading the clock once, in nanoseconds.
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

    fn measured(end: End, size: usize) -> SeparateCosts {
        let mut calibration = Calibration::new(end, size).unwrap();
        (0..200).for_each(|_| calibration.round());
        assert!(calibration.spent() > Duration::ZERO);
        calibration.result().unwrap()
    }

    #[test]
    fn all_costs_are_positive_and_grow_with_the_packet() {
        for end in [End::Sending, End::Receiving] {
            let (small, large) = (measured(end, 1200), measured(end, 8972));
            assert!(small.copy > 0.0 && small.cipher > 0.0 && small.header_cipher > 0.0, "{small:?}");
            // By how much depends on the machine: a fast cipher is mostly its fixed cost.
            assert!(large.cipher > small.cipher && large.copy > small.copy, "{small:?} {large:?}");
        }
    }

    #[test]
    fn a_batch_that_cannot_be_opened_is_an_error() {
        let mut calibration = Calibration::new(End::Receiving, 1472).unwrap();
        calibration.sealed[100] ^= 1;
        calibration.round();
        assert!(calibration.result().is_err());
    }

    #[test]
    fn a_batch_has_the_maximum_size_of_the_system() {
        assert_eq!((batch_len(1472), batch_len(8972), batch_len(500)), (44, 7, 64));
        assert_eq!(payload_len(1472), 1472 - 12 - 12 - 16);
    }
}
