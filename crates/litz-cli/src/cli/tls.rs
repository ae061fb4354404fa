//! TLS settings of the commands that speak a protocol of their own, named by ALPN (RFC 7301).

use std::sync::Arc;

use litz::identity::{ClientTls, Fingerprint, KeyPair, client_config, server_config};

/// Of a server.
///
/// # Errors
/// A message for the user.
pub(crate) fn server(key: &KeyPair, protocol: &[u8]) -> Result<Arc<rustls::ServerConfig>, String> {
    server_config(key, [protocol]).map_err(|error| error.to_string())
}

/// Of a client of `server`.
///
/// # Errors
/// A message for the user.
pub(crate) fn client(key: &KeyPair, server: Fingerprint, protocol: &[u8]) -> Result<ClientTls, String> {
    client_config(key, &[server], [protocol]).map_err(|error| error.to_string())
}
