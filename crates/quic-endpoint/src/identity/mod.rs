//! Host keys, and TLS with raw public keys.
//!
//! A host is known by its Ed25519 key pair ([`KeyPair`]); no certificates are involved (RFC 7250).
//! Both ends show their public keys. A client names the [`Fingerprint`]s of the servers that it
//! accepts ([`client_config`]); a server accepts any client and reads its key after the handshake
//! ([`peer_public_key`]), for example to look it up in an [`AllowList`].
//!
//! Nothing here opens a connection or reads a clock. Start with [`key`] and [`tls`].

pub mod allowed;
pub mod key;
mod pem;
pub mod tls;

pub use allowed::AllowList;
pub use key::{Fingerprint, KeyError, KeyPair, PublicKey};
pub use tls::{ClientTls, TlsError, WrongHost, client_config, peer_public_key, server_config};
