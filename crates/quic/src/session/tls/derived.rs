//! Packet keys derived here from traffic secrets, instead of by rustls.
//!
//! rustls wants the version of QUIC, and with it the labels of the keys (RFC 9001, section 5.1; RFC
//! 9369, section 3.3.2), when a client begins. A server may continue in another version (RFC 9368),
//! so a client that offers several has rustls tell it the secrets, as for a key log, and derives the
//! keys of the negotiated version from them.

use std::sync::{Arc, Mutex};

use aws_lc_rs::aead::quic::HeaderProtectionKey;
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{aead, hkdf};
use rustls::{CipherSuite, KeyLog};
use wire::quic::{PathId, Version};
use zeroize::Zeroizing;

use crate::session::{DirectionKeys, HeaderKey, LevelKeys, OpenFailed, PacketKey, PhaseKeys, TAG_LEN};

type Secret = Zeroizing<Vec<u8>>;

/// The secrets of both directions at one level.
#[derive(Clone)]
pub(super) struct Secrets {
    client: Secret,
    server: Secret,
}

/// Takes the secrets of one handshake from rustls.
#[derive(Default)]
pub(super) struct Captured {
    /// Handshake secrets of client and server, then those of the application data.
    secrets: [Mutex<Option<Secret>>; 4],
}

/// The labels of a key log (RFC 9850) in the order of [`Captured::secrets`].
const LABELS: [&str; 4] = [
    "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    "SERVER_HANDSHAKE_TRAFFIC_SECRET",
    "CLIENT_TRAFFIC_SECRET_0",
    "SERVER_TRAFFIC_SECRET_0",
];

impl Captured {
    fn put(&self, label: &str, secret: &[u8]) {
        if let Some(at) = LABELS.iter().position(|known| *known == label)
            && let Ok(mut place) = self.secrets[at].lock()
        {
            *place = Some(secret.to_vec().into());
        }
    }

    fn take(&self, at: usize) -> Option<Secret> {
        self.secrets[at].lock().ok()?.take()
    }

    /// Erases the secrets: rustls keeps the configuration with its log for as long as it lives.
    pub(super) fn clear(&self) {
        for at in 0..LABELS.len() {
            self.take(at);
        }
    }

    /// The secrets of Handshake packets, once.
    pub(super) fn take_handshake(&self) -> Option<Secrets> {
        Some(Secrets { client: self.take(0)?, server: self.take(1)? })
    }

    /// The first secrets of 1-RTT packets, once.
    pub(super) fn take_one_rtt(&self) -> Option<Secrets> {
        Some(Secrets { client: self.take(2)?, server: self.take(3)? })
    }
}

/// The key log of a client: captures secrets, and passes them on to the log of its configuration.
pub(super) struct Capture {
    pub(super) captured: Arc<Captured>,
    pub(super) log: Arc<dyn KeyLog>,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Capture")
    }
}

impl KeyLog for Capture {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        self.captured.put(label, secret);
        if self.log.will_log(label) {
            self.log.log(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        LABELS.contains(&label) || self.log.will_log(label)
    }
}

/// Derives the keys of a client in one version of QUIC with one cipher suite.
#[derive(Clone, Copy)]
pub(super) struct Derivation {
    version: Version,
    hash: hkdf::Algorithm,
    packet: &'static aead::Algorithm,
    header: &'static aead::quic::Algorithm,
    /// Packets that may be sealed, and that may fail to open (RFC 9001, section 6.6).
    limits: (u64, u64),
}

impl Derivation {
    /// None if `suite` is none that QUIC uses (RFC 9001, section 5.3).
    pub(super) fn new(version: Version, suite: CipherSuite) -> Option<Self> {
        let (hash, packet, header, limits) = match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => {
                (hkdf::HKDF_SHA256, &AES_128_GCM, &aead::quic::AES_128, (1 << 23, 1 << 52))
            }
            CipherSuite::TLS13_AES_256_GCM_SHA384 => {
                (hkdf::HKDF_SHA384, &AES_256_GCM, &aead::quic::AES_256, (1 << 23, 1 << 52))
            }
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => {
                (hkdf::HKDF_SHA256, &CHACHA20_POLY1305, &aead::quic::CHACHA20, (u64::MAX, 1 << 36))
            }
            _ => return None,
        };
        Some(Self { version, hash, packet, header, limits })
    }

    pub(super) fn level_keys(&self, secrets: &Secrets) -> LevelKeys {
        LevelKeys { seal: self.direction_keys(&secrets.client), open: self.direction_keys(&secrets.server) }
    }

    fn direction_keys(&self, secret: &Secret) -> DirectionKeys {
        let key = self.expand(secret, self.label("hp"), self.packet.key_len());
        let header = HeaderProtectionKey::new(self.header, &key).expect("the key has the length of the cipher's");
        DirectionKeys { header: Arc::new(DerivedHeaderKey(header)), packet: self.packet_key(secret) }
    }

    fn packet_key(&self, secret: &Secret) -> Arc<dyn PacketKey> {
        let key = self.expand(secret, self.label("key"), self.packet.key_len());
        let key = UnboundKey::new(self.packet, &key).expect("the key has the length of the cipher's");
        let iv = self.expand(secret, self.label("iv"), NONCE_LEN);
        let iv = iv.as_slice().try_into().expect("the IV has the length of a nonce");
        Arc::new(DerivedPacketKey { key: LessSafeKey::new(key), iv, limits: self.limits })
    }

    /// The packet keys of the phase after `secrets`, and its secrets (RFC 9001, section 6.1).
    pub(super) fn next_phase(&self, secrets: &Secrets) -> (PhaseKeys, Secrets) {
        let next = |secret: &Secret| self.expand(secret, self.label("ku"), secret.len());
        let next = Secrets { client: next(&secrets.client), server: next(&secrets.server) };
        (PhaseKeys { seal: self.packet_key(&next.client), open: self.packet_key(&next.server) }, next)
    }

    fn label(&self, purpose: &str) -> String {
        match self.version {
            Version::V1 => format!("quic {purpose}"),
            Version::V2 => format!("quicv2 {purpose}"),
        }
    }

    /// HKDF-Expand-Label with an empty context (RFC 8446, section 7.1).
    fn expand(&self, secret: &[u8], label: String, len: usize) -> Secret {
        let label = format!("tls13 {label}");
        let info = [&(len as u16).to_be_bytes()[..], &[label.len() as u8], label.as_bytes(), &[0]];
        let key = hkdf::Prk::new_less_safe(self.hash, secret);
        let mut out = Zeroizing::new(vec![0; len]);
        let expanded = key.expand(&info, OutputLen(len)).and_then(|okm| okm.fill(&mut out));
        expanded.expect("no key is as long as 255 hashes");
        out
    }
}

struct OutputLen(usize);

impl hkdf::KeyType for OutputLen {
    fn len(&self) -> usize {
        self.0
    }
}

struct DerivedPacketKey {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    limits: (u64, u64),
}

impl DerivedPacketKey {
    /// RFC 9001, section 5.3, and multipath draft-21, section 2.4: path ID and packet number, as long
    /// as the IV, exclusive-or the IV.
    fn nonce(&self, path: PathId, number: u64) -> Nonce {
        let mut nonce = self.iv;
        let parts = [&path.0.to_be_bytes()[..], &number.to_be_bytes()];
        for (byte, part) in nonce.iter_mut().zip(parts.concat()) {
            *byte ^= part;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

impl PacketKey for DerivedPacketKey {
    fn seal(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> [u8; TAG_LEN] {
        let tag = self.key.seal_in_place_separate_tag(self.nonce(path, number), Aad::from(header), payload);
        let tag = tag.expect("an AEAD refuses only lengths that no datagram has");
        tag.as_ref().try_into().expect("every QUIC AEAD has a tag of 16 bytes")
    }

    fn open(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> Result<usize, OpenFailed> {
        let opened = self.key.open_in_place(self.nonce(path, number), Aad::from(header), payload);
        opened.map(|plain| plain.len()).map_err(|_| OpenFailed)
    }

    fn confidentiality_limit(&self) -> u64 {
        self.limits.0
    }

    fn integrity_limit(&self) -> u64 {
        self.limits.1
    }
}

struct DerivedHeaderKey(HeaderProtectionKey);

impl DerivedHeaderKey {
    /// The first byte and the number are masked (RFC 9001, section 5.4.1); `number_len` is that of
    /// the unmasked first byte.
    fn mask(&self, sample: &[u8]) -> [u8; 5] {
        self.0.new_mask(sample).expect("the sample has the length of the cipher's block")
    }
}

/// The bits of the first byte that are protected.
fn protected_bits(first: u8) -> u8 {
    if first & 0x80 == 0 { 0x1f } else { 0x0f }
}

impl HeaderKey for DerivedHeaderKey {
    fn protect(&self, sample: &[u8], first: &mut u8, number: &mut [u8]) {
        let mask = self.mask(sample);
        let number_len = usize::from(*first & 3) + 1;
        *first ^= mask[0] & protected_bits(*first);
        number.iter_mut().take(number_len).zip(&mask[1..]).for_each(|(byte, mask)| *byte ^= mask);
    }

    fn unprotect(&self, sample: &[u8], first: &mut u8, number: &mut [u8]) {
        let mask = self.mask(sample);
        *first ^= mask[0] & protected_bits(*first);
        let number_len = usize::from(*first & 3) + 1;
        number.iter_mut().take(number_len).zip(&mask[1..]).for_each(|(byte, mask)| *byte ^= mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    fn chacha20(version: Version) -> Derivation {
        Derivation::new(version, CipherSuite::TLS13_CHACHA20_POLY1305_SHA256).expect("QUIC uses it")
    }

    /// Seals the packet of the examples: a PING with number 654360564 and an empty connection ID.
    fn sealed(version: Version) -> Vec<u8> {
        let secret = hex("9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b").into();
        let keys = chacha20(version).direction_keys(&secret);
        let (mut header, mut payload) = (hex("4200bff4"), vec![1]);
        let tag = keys.packet.seal(PathId::ZERO, 654_360_564, &header, &mut payload);
        payload.extend_from_slice(&tag);
        let (first, number) = header.split_at_mut(1);
        // The number has three bytes, so the sample begins one byte later.
        keys.header.protect(&payload[1..], &mut first[0], number);
        [header, payload].concat()
    }

    #[test]
    fn the_packet_of_rfc_9001_a5_matches() {
        assert_eq!(sealed(Version::V1), hex("4cfe4189655e5cd55c41f69080575d7999c25a5bfb"));
    }

    #[test]
    fn the_packet_of_rfc_9369_a5_matches() {
        assert_eq!(sealed(Version::V2), hex("5558b1c60ae7b6b932bc27d786f4bc2bb20f2162ba"));
    }

    #[test]
    fn the_key_update_of_rfc_9369_a5_matches() {
        let secret: Secret = hex("9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b").into();
        let secrets = Secrets { client: secret.clone(), server: secret };
        let (_, next) = chacha20(Version::V2).next_phase(&secrets);
        assert_eq!(*next.client, hex("c69374c49e3d2a9466fa689e49d476db5d0dfbc87d32ceeaa6343fd0ae4c7d88"));
    }

    #[test]
    fn a_path_has_nonces_of_its_own() {
        let secret: Secret = vec![7; 32].into();
        let key = chacha20(Version::V1).packet_key(&secret);
        let seal = |path, number| key.seal(PathId(path), number, b"header", &mut [0; 8]);
        assert_eq!(seal(1, 5), seal(1, 5));
        assert_ne!(seal(1, 5), seal(0, 5));
        assert_ne!(seal(1, 5), seal(1, 6));
    }
}
