//! The host's Ed25519 key pair, public keys and their fingerprints.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use credentials::{base32, private_file};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use zeroize::Zeroizing;

use super::pem;

/// A host's key pair, which identifies the host. It is stored as PKCS #8 in PEM, so that other
/// tools can read it.
pub struct KeyPair {
    /// The private key, erased on drop.
    pkcs8: Zeroizing<Vec<u8>>,
    public: PublicKey,
}

/// An Ed25519 public key (RFC 8032, section 5.1.5). Its text is `ed25519:` and 52 letters and
/// digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

/// SHA-256 of a key's SubjectPublicKeyInfo. Its text is `sha256:` and 52 letters and digits;
/// [`Fingerprint::short`] is a short form that people can compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

/// Errors of creating, reading and parsing keys.
#[derive(Debug)]
#[non_exhaustive]
pub enum KeyError {
    /// The file could not be read.
    Read(PathBuf, io::Error),
    /// The file could not be written; [`io::ErrorKind::AlreadyExists`] if it exists.
    Write(PathBuf, io::Error),
    /// Users other than the owner may read the private key.
    OpenToOthers(PathBuf),
    /// The file holds no Ed25519 private key.
    NoKeyIn(PathBuf),
    /// The system provided no randomness.
    Random,
    /// The bytes are not the SubjectPublicKeyInfo of an Ed25519 key.
    NotEd25519,
    /// The text is not a public key or fingerprint in the documented form.
    Text(&'static str),
}

impl KeyPair {
    /// Generates a pair from the system's randomness, in memory only.
    ///
    /// # Errors
    /// [`KeyError::Random`] if the system provides no randomness.
    pub fn generate() -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::generate().map_err(|_| KeyError::Random)?;
        // Version 1 of PKCS #8 (RFC 5208): openssl and others do not read version 2, which also
        // carries the public key.
        let pkcs8 = pair.to_pkcs8v1().map_err(|_| KeyError::Random)?;
        Ok(Self { pkcs8: Zeroizing::new(pkcs8.as_ref().to_vec()), public: PublicKey::of(&pair) })
    }

    /// Generates a pair and writes it to `path` (mode 0600, atomically).
    ///
    /// # Errors
    /// [`KeyError::Write`] if the file exists or cannot be written, [`KeyError::Random`].
    pub fn create(path: &Path) -> Result<Self, KeyError> {
        let pair = Self::generate()?;
        let write_error = |error| KeyError::Write(path.to_owned(), error);
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            private_file::create_directory(parent).map_err(write_error)?;
        }
        let text = Zeroizing::new(pem::encode(PEM_LABEL, &pair.pkcs8));
        private_file::create_new(path, text.as_bytes()).map_err(write_error)?;
        Ok(pair)
    }

    /// Reads the pair at `path`.
    ///
    /// # Errors
    /// [`KeyError::Read`], [`KeyError::OpenToOthers`] or [`KeyError::NoKeyIn`], each naming the
    /// file.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let (text, open_to_others) =
            private_file::read_own(path, KEY_FILE_LEN_MAX).map_err(|error| KeyError::Read(path.to_owned(), error))?;
        if open_to_others {
            return Err(KeyError::OpenToOthers(path.to_owned()));
        }
        let no_key = || KeyError::NoKeyIn(path.to_owned());
        let der = PrivatePkcs8KeyDer::from_pem_slice(&text).map(Zeroizing::new).map_err(|_| no_key())?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der()).map_err(|_| no_key())?;
        Ok(Self { pkcs8: Zeroizing::new(der.secret_pkcs8_der().to_vec()), public: PublicKey::of(&pair) })
    }

    /// Reads the pair at `path`, or creates it there. Two processes that do this at the same time
    /// get the same pair.
    ///
    /// # Errors
    /// Same errors as [`KeyPair::load`] and [`KeyPair::create`].
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        match Self::load(path) {
            Err(KeyError::Read(_, error)) if error.kind() == io::ErrorKind::NotFound => {}
            outcome => return outcome,
        }
        match Self::create(path) {
            Err(KeyError::Write(_, error)) if error.kind() == io::ErrorKind::AlreadyExists => Self::load(path),
            outcome => outcome,
        }
    }

    /// Returns the public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns a secret derived from the pair and `purpose` alone, such as
    /// [`EndpointConfig::reset_key`](crate::EndpointConfig::reset_key) of an endpoint that keeps it
    /// across restarts. Two endpoints must not have the same reset key: include what distinguishes
    /// them in `purpose`.
    pub fn derive_secret(&self, purpose: &str) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.pkcs8);
        let tag = hmac::sign(&key, format!("litz secret: {purpose}").as_bytes());
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// Returns the private half for the TLS library.
    pub(crate) fn pkcs8(&self) -> PrivatePkcs8KeyDer<'_> {
        PrivatePkcs8KeyDer::from(self.pkcs8.as_slice())
    }
}

impl PublicKey {
    /// Returns the key with these bytes. Any bytes are accepted; the handshake verifies that the
    /// peer can sign with the key.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of RFC 8032.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the DER SubjectPublicKeyInfo (RFC 8410, section 4): the form that RFC 7250 sends in
    /// place of a certificate.
    pub fn to_spki(&self) -> [u8; 44] {
        let mut spki = [0; 44];
        spki[..SPKI_PREFIX.len()].copy_from_slice(&SPKI_PREFIX);
        spki[SPKI_PREFIX.len()..].copy_from_slice(&self.0);
        spki
    }

    /// Returns the key inside a DER SubjectPublicKeyInfo.
    ///
    /// # Errors
    /// [`KeyError::NotEd25519`] for any other algorithm or encoding. DER has exactly one encoding
    /// of a key.
    pub fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        let key = spki.strip_prefix(&SPKI_PREFIX).ok_or(KeyError::NotEd25519)?;
        Ok(Self(key.try_into().map_err(|_| KeyError::NotEd25519)?))
    }

    /// Returns the fingerprint, by which tickets and lists name the key.
    pub fn fingerprint(&self) -> Fingerprint {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &self.to_spki());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Fingerprint(bytes)
    }

    fn of(pair: &Ed25519KeyPair) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(pair.public_key().as_ref());
        Self(bytes)
    }
}

impl Fingerprint {
    /// Returns the fingerprint with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of SHA-256.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the first 80 bits, in four groups of four characters. For display only: access
    /// decisions compare all 32 bytes.
    pub fn short(&self) -> String {
        let text = base32::encode(&self.0[..10]);
        [&text[..4], &text[4..8], &text[8..12], &text[12..16]].join("-")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KEY_PREFIX}{}", base32::encode(&self.0))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FINGERPRINT_PREFIX}{}", base32::encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl fmt::Debug for KeyPair {
    /// Prints the public half only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("public", &self.public).finish_non_exhaustive()
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Ok(Self(parse_text(text, KEY_PREFIX, "a public key is written ed25519: and 52 letters and digits")?))
    }
}

impl FromStr for Fingerprint {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Ok(Self(parse_text(text, FINGERPRINT_PREFIX, "a fingerprint is written sha256: and 52 letters and digits")?))
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "cannot read the host key {}: {error}", path.display()),
            Self::Write(path, error) => write!(f, "cannot write the host key {}: {error}", path.display()),
            Self::OpenToOthers(path) => {
                let path = path.display();
                write!(f, "other users can read the host key {path}: run `chmod 600 {path}`")
            }
            Self::NoKeyIn(path) => {
                write!(
                    f,
                    "{} holds no Ed25519 private key (PKCS #8 in PEM): move the file away to have a new key created",
                    path.display()
                )
            }
            Self::Random => write!(f, "cannot create a key: the system provided no randomness"),
            Self::NotEd25519 => write!(f, "the peer's key is not an Ed25519 public key"),
            Self::Text(expected) => write!(f, "{expected}"),
        }
    }
}

impl std::error::Error for KeyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(_, error) | Self::Write(_, error) => Some(error),
            _ => None,
        }
    }
}

fn parse_text(text: &str, prefix: &str, expected: &'static str) -> Result<[u8; 32], KeyError> {
    let body = text.strip_prefix(prefix).ok_or(KeyError::Text(expected))?;
    let bytes = base32::decode(body).map_err(|_| KeyError::Text(expected))?;
    bytes.try_into().map_err(|_| KeyError::Text(expected))
}

/// SEQUENCE { SEQUENCE { OID 1.3.101.112 }, BIT STRING of 32 bytes } up to the key itself (RFC
/// 8410, sections 3 and 4).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

const PEM_LABEL: &str = "PRIVATE KEY";
const KEY_PREFIX: &str = "ed25519:";
const FINGERPRINT_PREFIX: &str = "sha256:";

/// A key file has less than 200 bytes; a file longer than this is not one.
const KEY_FILE_LEN_MAX: u64 = 16 * 1024;

#[cfg(test)]
mod tests;
