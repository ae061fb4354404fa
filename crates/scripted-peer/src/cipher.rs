//! The available ciphers, and TLS settings with which two ends in one process agree on one of them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::signature::Ed25519KeyPair;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs as provider;
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, PeerIncompatible, ServerConfig, SignatureScheme,
    SupportedCipherSuite,
};

/// The ALPN protocol (RFC 7301). Never seen on a network.
const ALPN: &[u8] = b"litz-speedup";

/// The AEAD that seals the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cipher {
    /// AES with keys of 128 bits.
    Aes128Gcm,
    /// AES with keys of 256 bits.
    Aes256Gcm,
    /// ChaCha20.
    ChaCha20Poly1305,
}

impl Cipher {
    const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// Returns the name on the command line and in files.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes128",
            Self::Aes256Gcm => "aes256",
            Self::ChaCha20Poly1305 => "chacha20",
        }
    }

    fn suite(self) -> SupportedCipherSuite {
        match self {
            Self::Aes128Gcm => provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
            Self::Aes256Gcm => provider::cipher_suite::TLS13_AES_256_GCM_SHA384,
            Self::ChaCha20Poly1305 => provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        }
    }

    /// Returns the name used in the statistics of a connection.
    pub fn suite_name(self) -> String {
        format!("{:?}", self.suite().suite())
    }

    /// Returns a provider with this cipher first. AES-128 is always included: Initial packets need
    /// it (RFC 9001, section 5.2).
    fn provider(self) -> CryptoProvider {
        let mut cipher_suites = vec![self.suite()];
        if self != Self::Aes128Gcm {
            cipher_suites.push(Self::Aes128Gcm.suite());
        }
        CryptoProvider { cipher_suites, ..provider::default_provider() }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        })
    }
}

impl FromStr for Cipher {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|cipher| cipher.id() == text);
        found.ok_or_else(|| format!("there is no cipher {text:?}: aes128, aes256 or chacha20"))
    }
}

/// TLS settings of both ends of a connection inside this process.
pub struct Tls {
    /// Settings of the connecting end.
    pub client: Arc<ClientConfig>,
    /// Settings of the accepting end.
    pub server: Arc<ServerConfig>,
}

/// The system's clock. The TLS library's own clock panics if the time is before 1970.
#[derive(Debug)]
struct AnyClock;

impl TimeProvider for AnyClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(net::since_epoch().into()))
    }
}

impl Tls {
    /// Creates settings with a new key, the only one that the client accepts.
    ///
    /// # Errors
    /// Fails if the TLS library fails or the system provides no randomness.
    pub fn new(cipher: Cipher) -> Result<Self, String> {
        let to_message = |error: rustls::Error| format!("cannot set up TLS: {error}");
        let pair = Ed25519KeyPair::generate().map_err(|_| "the system gives no random bytes".to_owned())?;
        let pkcs8 = pair.to_pkcs8v1().map_err(|_| "the TLS library refuses its own key".to_owned())?;
        let key = provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_ref())).map_err(to_message)?;
        let public = key.public_key().ok_or("the TLS library returned no public key")?;
        let public = CertificateDer::from(public.as_ref().to_vec());
        let certified = Arc::new(CertifiedKey::new(vec![public.clone()], key));
        let provider = Arc::new(cipher.provider());
        let mut server = ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(AnyClock))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(to_message)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_details(provider, Arc::new(AnyClock))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(to_message)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(OneKey(public)))
            .with_no_client_auth();
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }
}

/// Accepts only the key made for this run.
#[derive(Debug)]
struct OneKey(CertificateDer<'static>);

impl ServerCertVerifier for OneKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *end_entity == self.0 && intermediates.is_empty() {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::UnknownIssuer.into())
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
        let algorithms = provider::default_provider().signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &SubjectPublicKeyInfoDer::from(cert.as_ref()), dss, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cipher_names_are_parsed_and_displayed() {
        for cipher in Cipher::ALL {
            assert_eq!(cipher.id().parse(), Ok(cipher));
        }
        assert!("rot13".parse::<Cipher>().unwrap_err().contains("aes128, aes256 or chacha20"));
    }
}
