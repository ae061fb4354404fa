//! A self-signed certificate for `localhost`, and rustls configurations around it.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// Both ends speak this.
pub const ALPN: &[u8] = b"litz-interop";

/// AES-128-GCM first, the hybrid key exchange first: what Litz itself prefers.
pub fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519MLKEM768, aws_lc_rs::kx_group::X25519];
    Arc::new(provider)
}

/// A server's configuration, and that of clients who trust it.
pub fn pair() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    Made::new().configs()
}

/// A certificate and its key.
#[derive(Debug)]
pub struct Made {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    /// The certificate as PEM, for programs.
    pub certificate_pem: String,
    /// The key as PEM.
    pub key_pem: String,
}

impl Default for Made {
    fn default() -> Self {
        Self::new()
    }
}

impl Made {
    /// A new one.
    pub fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate can be made");
        Self {
            certificate: CertificateDer::from(made.cert.der().to_vec()),
            key: PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()),
            certificate_pem: made.cert.pem(),
            key_pem: made.signing_key.serialize_pem(),
        }
    }

    /// A server's configuration, and that of clients who trust it.
    pub fn configs(&self) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
        self.configs_for(ALPN)
    }

    /// The same for another application protocol.
    pub fn configs_for(&self, alpn: &[u8]) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
        let key = PrivateKeyDer::from(self.key.clone_key());
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3 is built in")
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], key)
            .expect("the key fits the certificate");
        server.alpn_protocols = vec![alpn.to_vec()];
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("the certificate is well-formed");
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3 is built in")
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![alpn.to_vec()];
        (Arc::new(server), Arc::new(client))
    }
}
