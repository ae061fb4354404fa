//! The tokens for later connections that this side has issued or received (RFC 9000, section 8.1.3).

use bytes::Bytes;
use wire::quic::Version;

use crate::address_tokens::issue::IssuedTokens;
use crate::address_tokens::memory::ReceivedTokens;

/// The tokens of one connection. A side has those of its role only.
#[derive(Default)]
pub(super) struct AddressTokens {
    /// The tokens for later connections that this server has issued, if any.
    pub(super) issued: Option<Box<IssuedTokens>>,
    /// Where this client keeps the server's.
    pub(super) received: Option<Box<ReceivedTokens>>,
}

impl AddressTokens {
    /// NEW_TOKEN (RFC 9000, section 19.7).
    pub(super) fn on_token(&mut self, version: Version, token: &Bytes) {
        if let Some(received) = &mut self.received {
            received.on_token(version, token);
        }
    }
}
