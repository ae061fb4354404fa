//! TLS settings of the commands that speak a protocol of their own, named by ALPN (RFC 7301).

use std::sync::Arc;

use litz::identity::{ClientTls, Fingerprint, KeyPair, client_config, server_config};

/// Of a server.
///
/// # Errors
/// A message for the user.
pub(crate) fn server(key: &KeyPair, protocol: &[u8]) -> Result<Arc<rustls::ServerConfig>, String> {
    let mut config = server_config(key).map_err(|error| error.to_string())?;
    Arc::make_mut(&mut config).alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}

/// Of a client of `server`.
///
/// # Errors
/// A message for the user.
pub(crate) fn client(key: &KeyPair, server: Fingerprint, protocol: &[u8]) -> Result<ClientTls, String> {
    let mut tls = client_config(key, &[server]).map_err(|error| error.to_string())?;
    Arc::make_mut(&mut tls.config).alpn_protocols = vec![protocol.to_vec()];
    Ok(tls)
}
