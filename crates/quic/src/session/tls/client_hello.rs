//! The client's transport parameters, read before TLS processes its hello: a server chooses the
//! version of the connection by them (RFC 9368, section 2.3).

use wire::quic::{Reader, UnexpectedEnd};

const CLIENT_HELLO: u8 = 1;

/// The extension quic_transport_parameters (RFC 9001, section 8.2).
const QUIC_TRANSPORT_PARAMETERS: u16 = 0x39;

/// The transport parameters in a whole ClientHello message (RFC 8446, section 4.1.2); none if there
/// are none. A message that is not well-formed is for TLS to refuse.
pub(super) fn transport_parameters(message: &[u8]) -> Option<&[u8]> {
    find(message).unwrap_or(None)
}

fn find(message: &[u8]) -> Result<Option<&[u8]>, UnexpectedEnd> {
    let mut reader = Reader::new(message);
    // The type, a length of 24 bits, the legacy version and the random value.
    if reader.u8()? != CLIENT_HELLO {
        return Ok(None);
    }
    reader.bytes(3 + 2 + 32)?;
    let session_id = reader.u8()?;
    reader.bytes(session_id.into())?;
    let cipher_suites = reader.u16()?;
    reader.bytes(cipher_suites.into())?;
    let compression_methods = reader.u8()?;
    reader.bytes(compression_methods.into())?;
    let extensions = reader.u16()?;
    let mut extensions = Reader::new(reader.bytes(extensions.into())?);
    while !extensions.is_empty() {
        let (id, len) = (extensions.u16()?, extensions.u16()?);
        let value = extensions.bytes(len.into())?;
        if id == QUIC_TRANSPORT_PARAMETERS {
            return Ok(Some(value));
        }
    }
    Ok(None)
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
        assert_eq!(transport_parameters(&hello()), Some(&b"parameters"[..]));
    }

    #[test]
    fn no_prefix_and_no_changed_byte_makes_the_parser_panic() {
        let whole = hello();
        for cut in 0..whole.len() {
            let _parameters = transport_parameters(&whole[..cut]);
            let mut changed = whole.clone();
            changed[cut] ^= 0xff;
            let _parameters = transport_parameters(&changed);
        }
    }
}
