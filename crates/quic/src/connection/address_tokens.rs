//! The client's tokens: one that it presents, and where new ones are kept.

use super::Connection;
use crate::address_tokens::memory::ReceivedTokens;

impl Connection {
    /// Repeats `token` in every Initial packet (RFC 9000, section 8.1.3). Before the first plan.
    pub(crate) fn present_token(&mut self, token: Vec<u8>) {
        self.record(|journal| journal.token(&token));
        self.send.set_token(token);
    }

    /// Keeps the tokens that the server gives for later connections.
    pub(crate) fn keep_tokens(&mut self, received: ReceivedTokens) {
        self.control.set_received_tokens(received);
    }
}
