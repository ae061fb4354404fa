//! [`Transparent`]: a stack that has every address, and lets the application decide about each SYN;
//! proxies need it to connect to the destination first.
//!
//! ```text
//!                              driver                               application
//!  SYN to any address ──▶ [ held SYN ] ── Opening ─────────────▶ connects elsewhere
//!  SYN and ACK ◀───────── [ connection ] ◀────────── accept ──── it is connected
//!  reset ◀──────────────────────────────◀────────── refuse ──── it is not
//! ```
//!
//! Its device also carries packets of others. [`Transparent::owns`] tells which are the stack's:
//! those of its connections, including TIME-WAIT, and of SYNs that wait. The caller that passes
//! packets on chooses the SYNs that may begin a connection.
//!
//! A held SYN takes memory before its sender has proved its address, so their number is bounded. Cookies
//! (RFC 4987, section 3.6) cannot replace them: a cookie is an answer, and there is none before the
//! decision.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use driver::EndReason;
use driver::protocol::Cell;
use driver::sync::{WakerSet, lock};
use tcp::{Arrival, Tuple};
use wire::tcp::Flags;

use crate::application::TcpCell;
use crate::packets::Received;
use crate::table::Table;

/// Limits of a transparent stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransparentBounds {
    /// Limit on SYNs that wait for a decision. Each takes about 300 bytes here, in addition to the
    /// application's state.
    pub openings_max: usize,
    /// Limit on connections, including those in TIME-WAIT and the SYNs that wait. Beyond it no
    /// connection begins.
    pub connections_max: usize,
}

/// A SYN that waits for a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// Addresses and ports. The local ones are the peer's destination.
    pub tuple: Tuple,
    /// Whether the peer offers explicit congestion notification (RFC 3168, section 6.1.1).
    pub asks_for_ecn: bool,
    /// Differentiated services code point of the SYN.
    pub dscp: u8,
}

/// The application's decision about a SYN.
pub(crate) enum Decision {
    /// Answers the SYN, and begins the connection of this cell, with this DSCP.
    Accept(Arc<TcpCell>, u8),
    /// Resets the peer.
    Refuse,
    /// Reports to the peer that the host is unreachable.
    Unreachable,
    /// Sends no answer, so that the peer repeats its SYN.
    Ignore,
}

/// State that a transparent stack and its application share.
pub struct Transparent {
    bounds: TransparentBounds,
    state: Mutex<State>,
}

struct State {
    /// Addresses and ports of the stack, with the DSCP of the last packet from each.
    own: Table<u8>,
    /// Number of undecided SYNs.
    openings: usize,
    /// SYNs that the application has not taken.
    waiting: VecDeque<Opening>,
    wakers: WakerSet,
    /// Decisions; each concerns one SYN, so that they are bounded, too.
    decisions: VecDeque<(Tuple, Decision)>,
    is_over: bool,
}

impl Transparent {
    /// Creates the state; `key` is the secret of the [stack](tcp::HostSecret::table_key).
    pub fn new(bounds: TransparentBounds, key: [u8; 16]) -> Self {
        let state = State {
            own: Table::new(key),
            openings: 0,
            waiting: VecDeque::new(),
            wakers: WakerSet::default(),
            decisions: VecDeque::new(),
            is_over: false,
        };
        Self { bounds, state: Mutex::new(state) }
    }

    /// Returns whether packets with these addresses and ports are the stack's. Can be called from
    /// any thread.
    pub fn owns(&self, tuple: &Tuple) -> bool {
        lock(&self.state).own.contains(tuple)
    }

    /// Does the same as [`owns`](Self::owns) for a packet that arrives with this DSCP, and records
    /// the DSCP.
    pub fn takes(&self, tuple: &Tuple, dscp: u8) -> bool {
        let mut state = lock(&self.state);
        let own = state.own.get_mut(tuple);
        own.map(|last| *last = dscp).is_some()
    }

    /// Returns the DSCP of the last packet [taken](Self::takes) with these addresses and ports; 0
    /// before the first one. Returns `None` if they are not the stack's.
    pub fn dscp_of_peer(&self, tuple: &Tuple) -> Option<u8> {
        lock(&self.state).own.get(tuple).copied()
    }

    /// Returns whether one more SYN can be held.
    pub fn has_space(&self) -> bool {
        self.has_space_in(&lock(&self.state))
    }

    fn has_space_in(&self, state: &State) -> bool {
        !state.is_over && state.openings < self.bounds.openings_max && state.own.len() < self.bounds.connections_max
    }

    /// Returns the number of connections, including those in TIME-WAIT and the SYNs that wait.
    pub fn connection_count(&self) -> usize {
        lock(&self.state).own.len()
    }

    /// Returns the SYN that has waited longest; `None` if the stack has ended.
    pub fn poll_opening(&self, waker: &Waker) -> Poll<Option<Opening>> {
        let mut state = lock(&self.state);
        if let Some(opening) = state.waiting.pop_front() {
            return Poll::Ready(Some(opening));
        }
        if state.is_over {
            return Poll::Ready(None);
        }
        state.wakers.add(waker);
        Poll::Pending
    }

    /// Decides about a SYN. The caller must then call
    /// [`note_decision`](driver::Shared::note_decision) and wake the driver.
    pub(crate) fn decide(&self, tuple: Tuple, decision: Decision) {
        let mut state = lock(&self.state);
        match decision {
            Decision::Accept(cell, _) if state.is_over => {
                drop(state);
                cell.refuse(EndReason::EndpointClosed);
            }
            decision if !state.is_over => state.decisions.push_back((tuple, decision)),
            _ => {}
        }
    }

    /// Adds a SYN if there is space; returns whether there was.
    fn push(&self, opening: Opening) -> bool {
        let wakers = {
            let mut state = lock(&self.state);
            if !self.has_space_in(&state) {
                return false;
            }
            state.own.insert(opening.tuple, opening.dscp);
            state.openings += 1;
            state.waiting.push_back(opening);
            state.wakers.take()
        };
        wakers.wake();
        true
    }

    fn pop_decision(&self) -> Option<(Tuple, Decision)> {
        let mut state = lock(&self.state);
        let decided = state.decisions.pop_front()?;
        state.openings -= 1;
        Some(decided)
    }

    /// Sets whether packets with these addresses and ports are the stack's from now on.
    pub(crate) fn set_own(&self, tuple: &Tuple, is_own: bool) {
        let mut state = lock(&self.state);
        if is_own {
            if !state.own.contains(tuple) {
                state.own.insert(*tuple, 0);
            }
        } else {
            state.own.remove(tuple);
        }
    }

    fn end(&self) {
        let (wakers, decisions) = {
            let mut state = lock(&self.state);
            state.is_over = true;
            state.waiting.clear();
            (state.wakers.take(), std::mem::take(&mut state.decisions))
        };
        wakers.wake();
        for (_, decision) in decisions {
            if let Decision::Accept(cell, _) = decision {
                cell.refuse(EndReason::EndpointClosed);
            }
        }
    }
}

impl std::fmt::Debug for Transparent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transparent").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

/// SYNs held by a driver.
#[derive(Debug)]
pub(crate) struct HeldSyns {
    pub(crate) shared: Arc<Transparent>,
    by_tuple: Table<Held>,
}

#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) batch: Received,
    pub(crate) socket: usize,
}

impl HeldSyns {
    pub(crate) fn new(shared: Arc<Transparent>, key: [u8; 16]) -> Self {
        Self { shared, by_tuple: Table::new(key) }
    }

    pub(crate) fn contains(&self, tuple: &Tuple) -> bool {
        self.by_tuple.contains(tuple)
    }

    /// Holds a SYN, or a repetition, which replaces it: a peer that repeats its SYN no longer
    /// requests ECN (RFC 3168, section 6.1.1.1), and may have restarted. Returns false if there is
    /// no space.
    pub(crate) fn hold(&mut self, socket: usize, batch: Received, arrival: &Arrival) -> bool {
        let dscp = wire::ip::Packet::parse(batch.packet()).map_or(0, |ip| ip.dscp);
        let held = Held { batch, socket };
        if let Some(known) = self.by_tuple.get_mut(&arrival.tuple) {
            *known = held;
            return true;
        }
        let asks_for_ecn = arrival.header.flags.contains(Flags::ECE | Flags::CWR);
        let has_space = self.shared.push(Opening { tuple: arrival.tuple, asks_for_ecn, dscp });
        if has_space {
            self.by_tuple.insert(arrival.tuple, held);
        }
        has_space
    }

    /// Takes the next decision, and the SYN that it concerns.
    pub(crate) fn pop_decided(&mut self) -> Option<(Held, Decision)> {
        let (tuple, decision) = self.shared.pop_decision()?;
        let held = self.by_tuple.remove(&tuple).expect("a SYN is held until its decision");
        Some((held, decision))
    }
}

impl Drop for HeldSyns {
    fn drop(&mut self) {
        self.shared.end();
    }
}
