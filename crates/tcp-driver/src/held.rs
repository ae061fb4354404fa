//! Driver calls about SYNs that a transparent stack holds until the application has decided.

use std::sync::Arc;

use driver::EndReason;
use driver::protocol::{Begun, Cell};
use tcp::{Arrival, SuperPacket, Tuple, icmp};
use units::Instant;

use crate::connection::TcpConnection;
use crate::counters::Count;
use crate::layers::seal;
use crate::packets::{Opened, Received};
use crate::protocol::Tcp;
use crate::transparent::{Decision, Held};

impl Tcp {
    /// Holds a SYN that may begin a connection, if the stack is transparent.
    pub(crate) fn hold_syn(&mut self, socket: usize, batch: Received, arrival: &Arrival) -> Begun<Self> {
        let Some(held) = &mut self.held else { return Begun::Nothing };
        let is_held = held.hold(socket, batch, arrival);
        self.counters.add(if is_held { Count::Taken } else { Count::BacklogDrops });
        if is_held { Begun::Held } else { Begun::Nothing }
    }

    /// Carries out the next decision.
    pub(crate) fn take_decision(&mut self, now: Instant, may_begin: bool) -> Option<(usize, Begun<Self>)> {
        let (Held { batch, socket }, decision) = self.held.as_mut()?.pop_decided()?;
        let Opened::Segment(arrival) = batch.open(None, None) else { unreachable!("it was opened before") };
        let begun = self.decided(now, socket, &batch, &arrival, decision, may_begin);
        // A connection is added to the routes at once.
        if !matches!(begun, Begun::Connection(..)) {
            self.note_own(&arrival.tuple);
        }
        Some((socket, begun))
    }

    fn decided(
        &mut self,
        now: Instant,
        socket: usize,
        batch: &Received,
        arrival: &Arrival,
        decision: Decision,
        may_begin: bool,
    ) -> Begun<Self> {
        let mut out = SuperPacket::default();
        match decision {
            Decision::Accept(cell, dscp) if may_begin => {
                let mut connection = self.begin_accepted(now, arrival);
                if dscp != 0 {
                    connection.set_dscp(dscp);
                }
                // The application already has the handle, so the connection enters no queue of
                // accepted connections.
                let counters = Arc::clone(&self.counters);
                let connection = TcpConnection::new(connection, Arc::clone(&cell), counters, socket, false);
                return Begun::Connection(connection, cell);
            }
            Decision::Accept(cell, _) => cell.refuse(EndReason::TooMany),
            Decision::Refuse => {}
            Decision::Unreachable => {
                return if icmp::unreachable(batch.packet(), &mut out) { Begun::Reply(out) } else { Begun::Nothing };
            }
            Decision::Ignore => return Begun::Nothing,
        }
        if tcp::reply::reset(arrival, &mut self.plan) {
            seal(&self.plan, None, &mut out);
            return Begun::Reply(out);
        }
        Begun::Nothing
    }

    /// Updates for the application's side whether these addresses and ports are the stack's.
    pub(crate) fn note_own(&self, tuple: &Tuple) {
        if let Some(held) = &self.held {
            held.shared.set_own(tuple, self.is_taken(tuple) || held.contains(tuple));
        }
    }
}
