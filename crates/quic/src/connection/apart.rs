//! The rest of a connection while its receive half is on another processor: see [`part`](crate::part).

use units::Instant;
use wire::quic::PathId;

use super::Connection;
use crate::exchange::{Exchange, ToControl, ToReceive, ToSend};
use crate::journal::format::tag;
use crate::part::{Findings, Lens, LensPath, Orders, ReceivePart};
use crate::receive::ReceiveHalf;
use crate::send::frames::ControlFrame;
use crate::send::path::Addresses;
use crate::stats::ReceiveStats;

/// What a connection keeps while its receive half is elsewhere.
#[derive(Default)]
pub(super) struct Apart {
    /// Not taken yet. Bounded: streams are opened and end, paths answer and acknowledgements leave once each.
    orders: Orders,
    /// Boxes of them that were given.
    orders_given: u64,
    /// Keys, IDs or paths may have changed since the part was told.
    pub(super) is_lens_stale: bool,
    /// Where paths led when the part was last told.
    told_addresses: Vec<(PathId, Addresses)>,
    /// As of the last findings.
    pub(super) stats: ReceiveStats,
}

impl Apart {
    /// A value for the receive half: on its way there. `stand_in` has to know what is acknowledged.
    pub(super) fn order(&mut self, value: ToReceive, stand_in: &mut ReceiveHalf, exchange: &mut Exchange) {
        use ToReceive::{AckFloor, AckSent, ForgetPath};
        if matches!(value, AckSent { .. } | AckFloor { .. } | ForgetPath(_)) {
            stand_in.handle(value.clone(), exchange);
        }
        self.is_lens_stale |= matches!(value, ForgetPath(_));
        self.orders.values.push_back(value);
    }

    /// A value for control: whether it may change what the part has to know.
    pub(super) fn look_at(&mut self, value: &ToControl) {
        let is_routine = matches!(
            value,
            ToControl::PacketAccepted { .. } | ToControl::ElicitingSent { .. } | ToControl::PathState { .. }
        );
        self.is_lens_stale |= !is_routine;
    }

    /// The same of a value for the send half.
    pub(super) fn look_at_sending(&mut self, value: &ToSend) {
        use ControlFrame::{MaxPathId, NewConnectionId};
        self.is_lens_stale |= matches!(
            value,
            ToSend::OpenPath { .. } | ToSend::ForgetPath(_) | ToSend::Control(MaxPathId(_) | NewConnectionId { .. })
        );
    }
}

impl Connection {
    /// Gives the receive half away, to be run on another processor until it [rejoins](Self::rejoin). None while the handshake
    /// goes on, when the end has begun, and if it is away already.
    ///
    /// While it is away, whatever arrives is its own to handle, and streams and datagrams are accepted and read there: these calls
    /// find nothing here.
    #[must_use]
    pub fn part(&mut self) -> Option<ReceivePart> {
        if !self.can_part() {
            return None;
        }
        debug_assert!(self.exchange.is_empty(), "values are delivered before a call returns");
        self.note(|journal| journal.parted());
        let journal = self.journal.as_mut().map(|journal| journal.part());
        let lens = self.lens();
        let stand_in = self.receive.stand_in(self.side, self.control.config());
        let half = std::mem::replace(&mut self.receive, stand_in);
        let told_addresses = self.send.addresses().collect();
        self.apart = Some(Box::new(Apart { stats: half.stats(), told_addresses, ..Apart::default() }));
        Some(ReceivePart::new(half, lens, self.unauthentic_count, journal))
    }

    /// Whether [`part`](Self::part) would give the receive half away.
    pub fn can_part(&self) -> bool {
        self.apart.is_none() && self.control.is_confirmed()
    }

    /// Whether the receive half is away.
    pub fn is_apart(&self) -> bool {
        self.apart.is_some()
    }

    /// Values for the receive half that were not given to it yet.
    pub(crate) fn orders_waiting(&self) -> usize {
        self.apart.as_ref().map_or(0, |apart| apart.orders.values.len())
    }

    /// Fills `orders`, which are empty, with what there is for the receive half; false if that is nothing.
    #[must_use]
    pub fn poll_orders(&mut self, orders: &mut Orders) -> bool {
        debug_assert!(orders.is_empty(), "orders are taken before they are filled again");
        let Some(mut apart) = self.apart.take() else { return false };
        // A path may also move back by itself.
        let has_moved = !self.send.addresses().eq(apart.told_addresses.iter().copied());
        if (std::mem::take(&mut apart.is_lens_stale) || has_moved) && self.control.is_confirmed() {
            apart.orders.lens = Some(Box::new(self.lens()));
            apart.told_addresses.clear();
            apart.told_addresses.extend(self.send.addresses());
        }
        std::mem::swap(&mut apart.orders, orders);
        let has_some = !orders.is_empty();
        if has_some {
            apart.orders_given += 1;
            orders.number = apart.orders_given;
        }
        self.apart = Some(apart);
        if has_some {
            self.note_given(|journal| journal.gave(tag::GAVE_ORDERS, orders.number));
        }
        has_some
    }

    /// Takes what the receive half has found out. To be called before a plan is asked for and before timers fire, in the order in
    /// which findings were made.
    pub fn handle_findings(&mut self, now: Instant, findings: &mut Findings) {
        if findings.is_empty() {
            // What is left in it is of another time, and may be of another connection.
            return;
        }
        self.note(|journal| journal.took(tag::TOOK_FINDINGS, now, findings.number));
        self.take_findings(now, findings);
    }

    fn take_findings(&mut self, now: Instant, findings: &mut Findings) {
        if let Some(at) = findings.arrived_at {
            if self.control.is_idle_too_long(at) {
                // What came later is no sign of life: see `note_arrival`.
                self.on_timeout(now);
            }
            self.rest.note_busy(at);
        }
        self.receive.refresh(&findings.snapshot);
        if let Some(apart) = &mut self.apart {
            std::mem::swap(&mut apart.stats, &mut findings.stats);
        }
        // Ranges are named by where they lie.
        debug_assert!(self.exchange.is_empty() && self.exchange.ranges.is_empty(), "values are delivered");
        std::mem::swap(&mut self.exchange, &mut findings.exchange);
        self.settle(now);
        if let Some(error) = findings.failure.take() {
            self.fail(now, error);
            self.settle(now);
        }
        findings.clear();
    }

    /// Takes the receive half back, with what it has found out and was not told yet.
    pub fn rejoin(&mut self, now: Instant, mut part: ReceivePart) {
        // What it has written comes before what is written from now on.
        part.journal = None;
        self.note(|journal| journal.rejoined(now));
        if let Some(journal) = &mut self.journal {
            journal.rejoin();
        }
        let mut findings = Findings::default();
        if part.poll_findings(&mut findings) {
            self.take_findings(now, &mut findings);
        }
        let Some(mut apart) = self.apart.take() else { return };
        for value in apart.orders.values.drain(..) {
            part.half.handle(value, &mut self.exchange);
        }
        let stand_in = std::mem::replace(&mut self.receive, part.half);
        self.receive.take_acknowledged(&stand_in);
        self.unauthentic_count = part.unauthentic_count;
        while let Some(event) = part.events.pop() {
            self.events.push(event);
        }
        if let Some(ring) = &part.lens.ring {
            for path in &part.lens.paths {
                self.control.note_phase_from(path.id, ring.epoch, path.phase_from);
            }
        }
        self.settle(now);
    }

    /// What the receive half needs to know to open what arrives.
    fn lens(&mut self) -> Lens {
        let ring = self.control.ring();
        let phase_from = |path: PathId| self.control.ring_of(path).and_then(|ring| ring.phase_from);
        let path = |(id, addresses)| LensPath { id, addresses, phase_from: phase_from(id) };
        let paths = self.send.addresses().map(path).collect();
        Lens {
            ring,
            ids: self.control.ids().collect(),
            paths,
            max_path: self.control.max_path(),
            ignore_fixed_bit: self.control.config().grease,
        }
    }
}
