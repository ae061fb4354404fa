//! Tokens for later connections (RFC 9000, section 8.1.3): a server issues them, a client keeps them.

use std::net::IpAddr;

use units::Instant;
use wire::quic::Side;

use super::Control;
use crate::address_tokens::memory::ReceivedTokens;
use crate::exchange::{Exchange, ToSend};
use crate::send::frames::ControlFrame;

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
