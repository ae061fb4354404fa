//! What a server wants to know of a client's hello before TLS processes it, to choose the version of
//! the connection (RFC 9368, section 2.3).

use wire::quic::{Reader, UnexpectedEnd};

const CLIENT_HELLO: u8 = 1;

/// The extension early_data (RFC 8446, section 4.2.10): the client sends 0-RTT.
const EARLY_DATA: u16 = 42;

/// The extension quic_transport_parameters (RFC 9001, section 8.2).
const QUIC_TRANSPORT_PARAMETERS: u16 = 57;

/// Parts of a ClientHello message (RFC 8446, section 4.1.2).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello<'a> {
    /// The transport parameters; none if there are none.
    pub(super) parameters: Option<&'a [u8]>,
    /// Whether the client sends 0-RTT.
    pub(super) offers_early: bool,
    /// Whether it names a session in the way of TLS 1.2.
    pub(super) has_session_id: bool,
}

impl<'a> Hello<'a> {
    /// Reads a whole message. One that is not well-formed is for TLS to refuse.
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self::read(message).unwrap_or_default()
    }

    fn read(message: &'a [u8]) -> Result<Self, UnexpectedEnd> {
        let mut hello = Self::default();
        let mut reader = Reader::new(message);
        if reader.u8()? != CLIENT_HELLO {
            return Ok(hello);
        }
        // A length of 24 bits, the legacy version and the random value.
        reader.bytes(3 + 2 + 32)?;
        let session_id = reader.u8()?;
        reader.bytes(session_id.into())?;
        hello.has_session_id = session_id > 0;
        let cipher_suites = reader.u16()?;
        reader.bytes(cipher_suites.into())?;
        let compression_methods = reader.u8()?;
        reader.bytes(compression_methods.into())?;
        let extensions = reader.u16()?;
        let mut extensions = Reader::new(reader.bytes(extensions.into())?);
        while !extensions.is_empty() {
            let (id, len) = (extensions.u16()?, extensions.u16()?);
            let value = extensions.bytes(len.into())?;
            match id {
                QUIC_TRANSPORT_PARAMETERS => hello.parameters = Some(value),
                EARLY_DATA => hello.offers_early = true,
                _ => {}
            }
        }
        Ok(hello)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;

    use super::*;

    fn hello() -> Vec<u8> {
        let config = rustls::ClientConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3")
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from("litz").expect("a name");
        let mut client = rustls::quic::ClientConnection::new(
            Arc::new(config),
            rustls::quic::Version::V1,
            name,
            b"parameters".to_vec(),
        )
        .expect("a client starts");
        let mut out = Vec::new();
        assert!(client.write_hs(&mut out).is_none());
        out
    }

    #[test]
    fn the_parameters_of_a_hello_are_found() {
        let expected = Hello { parameters: Some(b"parameters"), offers_early: false, has_session_id: false };
        assert_eq!(Hello::of(&hello()), expected);
    }

    #[test]
    fn no_prefix_and_no_changed_byte_makes_the_parser_panic() {
        let whole = hello();
        for cut in 0..whole.len() {
            let _hello = Hello::of(&whole[..cut]);
            let mut changed = whole.clone();
            changed[cut] ^= 0xff;
            let _hello = Hello::of(&changed);
        }
    }
}
