//! The driver's calls for connection attempts that wait for the application's decision.

use std::sync::Arc;

use bytes::BytesMut;
use driver::protocol::Begun;
use quic::{BeginError, Side};
use units::Instant;

use super::Quic;
use crate::application::QuicShared;
use crate::cells::connection::ConnectionCell;
use crate::connection::Connection;
use crate::incoming::{Decision, Held};
use crate::packets::Packets;

impl<K: Packets> Quic<K> {
    /// Holds a client's first datagram, or a further one of a held attempt.
    pub(crate) fn hold(&mut self, now: Instant, socket: usize, batch: K::Batch, may_be_foreign: bool) -> Begun<Self> {
        let (Some(held), Some(first)) = (&mut self.held, K::first_bytes(&batch)) else { return Begun::Nothing };
        let (addresses, ecn) = (K::addresses(socket, &batch), K::ecn(&batch));
        let known = held.attempts.values_mut().find(|held| held.incoming.is_continued_by(&addresses, first));
        if let Some(known) = known {
            return if known.incoming.add(BytesMut::from(first), ecn) { Begun::Held } else { Begun::Nothing };
        }
        match self.endpoint.hold(now, addresses, BytesMut::from(first), ecn) {
            Ok(incoming) if held.attempts.len() >= held.attempts_max => {
                tracing::debug!(remote = %addresses.remote, "a client is refused: too many wait for a decision");
                K::answer(addresses, self.endpoint.refuse_held(&incoming)).map_or(Begun::Nothing, Begun::Reply)
            }
            Ok(incoming) => {
                held.add(now, incoming);
                Begun::Held
            }
            Err(BeginError::NotInitial) if may_be_foreign => Begun::Foreign(batch),
            Err(error) => {
                tracing::debug!(remote = %addresses.remote, %error, "no connection attempt");
                let answer = error.into_answer().and_then(|contents| K::answer(addresses, contents));
                answer.map_or(Begun::Nothing, Begun::Reply)
            }
        }
    }

    /// Carries out the next decision.
    pub(crate) fn decided(
        &mut self,
        now: Instant,
        shared: &Arc<QuicShared>,
        may_begin: bool,
    ) -> Option<(usize, Begun<Self>)> {
        let held = self.held.as_mut()?;
        let (number, decision) = held.queue.pop_decision(held.driver)?;
        // The attempt may have expired in the meantime.
        let Some(Held { incoming, .. }) = held.attempts.remove(&number) else { return Some((0, Begun::Nothing)) };
        let addresses = incoming.addresses();
        let answer = match decision {
            Decision::Accept if may_begin => match self.endpoint.accept_held(now, incoming) {
                Ok(quic) => {
                    let cell = Arc::new(ConnectionCell::new(Arc::clone(shared), addresses.remote, Side::Server));
                    let connection = Connection::new(quic, Arc::clone(&cell), self.observer.clone());
                    return Some((usize::from(addresses.socket), Begun::Connection(connection, cell)));
                }
                Err(error) => error.into_answer(),
            },
            Decision::Accept | Decision::Refuse => Some(self.endpoint.refuse_held(&incoming)),
            Decision::Retry => self.endpoint.retry_held(now, &incoming),
            Decision::Ignore => None,
        };
        let answer = answer.and_then(|contents| K::answer(addresses, contents));
        Some((usize::from(addresses.socket), answer.map_or(Begun::Nothing, Begun::Reply)))
    }

    /// Writes the packet that refuses the next expired attempt; returns its socket.
    pub(crate) fn refuse_expired(&mut self, out: &mut K::Sealed) -> Option<usize> {
        let held = self.held.as_mut()?;
        while let Some(incoming) = held.expired.pop_front() {
            let addresses = incoming.addresses();
            if let Some(answer) = K::answer(addresses, self.endpoint.refuse_held(&incoming)) {
                *out = answer;
                return Some(usize::from(addresses.socket));
            }
        }
        None
    }
}
