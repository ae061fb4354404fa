//! Tokens for later connections (RFC 9000, section 8.1.3): a server issues them, a client keeps them.

use std::net::IpAddr;

use bytes::Bytes;
use units::Instant;
use wire::quic::{Side, Version};

use super::Control;
use crate::address_tokens::issue::IssuedTokens;
use crate::address_tokens::memory::ReceivedTokens;
use crate::exchange::{Exchange, ToSend};
use crate::send::frames::ControlFrame;

/// The tokens of one connection. A side has those of its role only.
#[derive(Default)]
pub(super) struct AddressTokens {
    /// The tokens for later connections that this server has issued, if any.
    issued: Option<Box<IssuedTokens>>,
    /// Where this client keeps the server's.
    received: Option<Box<ReceivedTokens>>,
}

impl AddressTokens {
    /// NEW_TOKEN (RFC 9000, section 19.7).
    pub(super) fn on_token(&mut self, version: Version, token: &Bytes) {
        if let Some(received) = &mut self.received {
            received.on_token(version, token);
        }
    }
}

impl Control {
    /// The client's address is validated: it gets a token for it, and for those validated before
    /// (RFC 9000, section 9.3; multipath draft-21, section 3.1.3), unless it has one.
    pub(super) fn on_address_validated(&mut self, now: Instant, ip: IpAddr, exchange: &mut Exchange) {
        if self.side != Side::Server || !self.is_confirmed() {
            return;
        }
        let ip = ip.to_canonical();
        let mut issued = self.tokens.issued.take().unwrap_or_default();
        if let Some(addresses) = issued.next(ip)
            && let Some(token) = self.session.address_token(&self.secrets, now, issued.count(), &addresses)
        {
            exchange.to_send.push_back(ToSend::Control(ControlFrame::NewToken(token.into())));
            issued.on_issued(addresses);
        }
        self.tokens.issued = (issued.count() > 0).then_some(issued);
    }

    /// Tokens of the server go there.
    pub(crate) fn set_received_tokens(&mut self, received: ReceivedTokens) {
        self.tokens.received = Some(Box::new(received));
    }
}
