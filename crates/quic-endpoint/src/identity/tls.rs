//! TLS 1.3 settings for both ends: mutual authentication with raw public keys (RFC 7250) in place
//! of certificates, AES-128-GCM preferred.
//!
//! The client accepts exactly the hosts that it was configured with. The server accepts any Ed25519
//! key that signs the handshake; the application authorises the key afterwards, by a ticket's proof
//! or a list of keys.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs as provider, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, OtherError, PeerIncompatible,
    ServerConfig, SignatureScheme,
};

use super::key::{Fingerprint, KeyError, KeyPair, PublicKey};

/// The client's settings, and the result of checking the host's key.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientTls {
    /// Configuration of the QUIC handshake.
    pub config: Arc<ClientConfig>,
    verdict: Arc<Mutex<Option<WrongHost>>>,
}

/// Error: the host that answered has a key other than the expected ones.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WrongHost {
    /// The accepted fingerprints.
    pub expected: Vec<Fingerprint>,
    /// The fingerprint of the host that answered.
    pub presented: Fingerprint,
}

/// Error: the TLS settings could not be created.
#[derive(Debug)]
pub struct TlsError(rustls::Error);

/// The system's clock, whose time is never checked: raw keys have no dates. The TLS library's own
/// clock panics if the time is before 1970.
#[derive(Debug)]
struct AnyClock;

impl TimeProvider for AnyClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(net::since_epoch().into()))
    }
}

/// Returns the settings of the connecting end, with `own` as its key. The host must hold one of the
/// `expected` keys, and speak one of the application `protocols` (ALPN, RFC 7301), the preferred one
/// first.
///
/// # Errors
/// [`TlsError`] if the TLS library rejects the key or the settings, which no [`KeyPair`] causes.
pub fn client_config(
    own: &KeyPair,
    expected: &[Fingerprint],
    protocols: impl IntoIterator<Item: AsRef<[u8]>>,
) -> Result<ClientTls, TlsError> {
    let verdict = Arc::new(Mutex::new(None));
    let verifier =
        HostVerifier { expected: expected.to_vec(), verdict: Arc::clone(&verdict), algorithms: algorithms() };
    let mut config = ClientConfig::builder_with_details(Arc::new(crypto_provider()), Arc::new(AnyClock))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified_key(own)?)));
    config.alpn_protocols = alpn_protocols(protocols);
    // Every handshake is a full one: a resumed session would skip the verifier, and its exporter
    // would depend on an earlier authentication.
    config.resumption = Resumption::disabled();
    // This takes effect only where the user sets SSLKEYLOGFILE, to let a capture be decrypted.
    config.key_log = Arc::new(rustls::KeyLogFile::new());
    // Hosts are identified by their keys. A server name in clear text would only reveal the peer to
    // observers.
    config.enable_sni = false;
    Ok(ClientTls { config: Arc::new(config), verdict })
}

/// Returns the settings of the listening end, with `own` as its key. It chooses the first of the
/// application `protocols` that the client also names.
///
/// # Errors
/// Same errors as [`client_config`].
pub fn server_config(
    own: &KeyPair,
    protocols: impl IntoIterator<Item: AsRef<[u8]>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = ServerConfig::builder_with_details(Arc::new(crypto_provider()), Arc::new(AnyClock))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError)?
        .with_client_cert_verifier(Arc::new(AnyKeyVerifier { algorithms: algorithms() }))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified_key(own)?)));
    config.alpn_protocols = alpn_protocols(protocols);
    // No resumption (see `client_config`) and so no 0-RTT: 0-RTT data could be replayed.
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config.key_log = Arc::new(rustls::KeyLogFile::new());
    Ok(Arc::new(config))
}

/// Returns the key that the peer authenticated with, taken from
/// [`Connection::peer_identity`](crate::Connection::peer_identity).
///
/// # Errors
/// [`KeyError::NotEd25519`] if there is not exactly one Ed25519 key, which does not happen after a
/// handshake with the settings of this module.
pub fn peer_public_key(certificates: Option<&[CertificateDer<'_>]>) -> Result<PublicKey, KeyError> {
    match certificates {
        Some([key]) => PublicKey::from_spki(key),
        _ => Err(KeyError::NotEd25519),
    }
}

impl ClientTls {
    /// Returns the `WrongHost` error if the host's key made the handshake fail. Call it after a
    /// failed connect.
    pub fn wrong_host(&self) -> Option<WrongHost> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl WrongHost {
    /// Returns the `WrongHost` inside a TLS error, if it has one. Only the client can obtain it:
    /// the server receives an alert.
    pub fn from_error(error: &rustls::Error) -> Option<&Self> {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(reason))) => reason.downcast_ref(),
            _ => None,
        }
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("wrong_host", &self.wrong_host()).finish_non_exhaustive()
    }
}

impl fmt::Display for WrongHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrong fingerprint: expected ")?;
        for (index, expected) in self.expected.iter().enumerate() {
            write!(f, "{}{expected}", if index > 0 { " or " } else { "" })?;
        }
        write!(
            f,
            ", but the host that answered has {}: check the address and ask the host's owner for its current \
             fingerprint; if both are right, the connection is being intercepted",
            self.presented
        )
    }
}

impl std::error::Error for WrongHost {}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot set up TLS: {}", self.0)
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Verifies the host's key on the client.
#[derive(Debug)]
struct HostVerifier {
    expected: Vec<Fingerprint>,
    verdict: Arc<Mutex<Option<WrongHost>>>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Verifies on the server that the client presented a key; accepts any key.
#[derive(Debug)]
struct AnyKeyVerifier {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for HostVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let presented = sole_key(end_entity, intermediates)?.fingerprint();
        if self.expected.contains(&presented) {
            return Ok(ServerCertVerified::assertion());
        }
        let wrong = WrongHost { expected: self.expected.clone(), presented };
        *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(wrong.clone());
        Err(CertificateError::Other(OtherError(Arc::new(wrong))).into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for AnyKeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        sole_key(end_entity, intermediates).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Returns the only key: the certificate payload is exactly one SubjectPublicKeyInfo (RFC 7250,
/// section 3).
fn sole_key(key: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<PublicKey, rustls::Error> {
    match (PublicKey::from_spki(key), others) {
        (Ok(key), []) => Ok(key),
        _ => Err(CertificateError::BadEncoding.into()),
    }
}

fn verify_signature(
    message: &[u8],
    key: &CertificateDer<'_>,
    dss: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    verify_tls13_signature_with_raw_key(message, &SubjectPublicKeyInfoDer::from(key.as_ref()), dss, algorithms)
}

/// Returns the algorithms and their order. AES-128-GCM leads (the library's own order has AES-256
/// first): it is the fastest where AES has instructions, and the key exchange has no more than 128
/// bits of strength.
fn crypto_provider() -> CryptoProvider {
    use provider::{cipher_suite, kx_group};
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
        ],
        kx_groups: vec![kx_group::X25519MLKEM768, kx_group::X25519],
        ..provider::default_provider()
    }
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    provider::default_provider().signature_verification_algorithms
}

fn certified_key(own: &KeyPair) -> Result<Arc<CertifiedKey>, TlsError> {
    let signing_key = provider::sign::any_eddsa_type(&own.pkcs8()).map_err(TlsError)?;
    let spki = CertificateDer::from(own.public().to_spki().to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![spki], signing_key)))
}

fn alpn_protocols(protocols: impl IntoIterator<Item: AsRef<[u8]>>) -> Vec<Vec<u8>> {
    protocols.into_iter().map(|protocol| protocol.as_ref().to_vec()).collect()
}

#[cfg(test)]
mod tests;
