//! The rest of a connection while its receive half is detached: see the module
//! [`detached`](crate::detached).

use ::journal::format::tag;
use units::Instant;
use wire::quic::PathId;

use super::Connection;
use crate::addresses::Addresses;
use crate::detached::{DetachedReceiveHalf, OpenConfig, OpenConfigPath, ReceiveCommands, ReceiveReport};
use crate::exchange::{Exchange, ToControl, ToPath, ToReceive, ToSend};
use crate::receive::ReceiveHalf;
use crate::send::frames::ControlFrame;
use crate::stats::ReceiveStats;

/// State of a connection whose receive half is detached.
#[derive(Default)]
pub(super) struct Detached {
    /// Not passed on yet. Bounded: streams are opened and end, paths answer and acknowledgements
    /// leave once each.
    commands: ReceiveCommands,
    /// How many times commands were passed on.
    commands_given: u64,
    /// Keys, connection IDs or paths may have changed since the half got its configuration.
    pub(super) is_config_stale: bool,
    /// The addresses of the paths in that configuration.
    config_addresses: Vec<(PathId, Addresses)>,
    /// As of the last report.
    pub(super) stats: ReceiveStats,
}

impl Detached {
    /// Queues a value for the receive half. The stand-in takes those that say what is acknowledged,
    /// too.
    pub(super) fn push(&mut self, value: ToReceive, stand_in: &mut ReceiveHalf, exchange: &mut Exchange) {
        use ToReceive::{AckFloor, AckSent, ForgetPath};
        if matches!(value, AckSent { .. } | AckFloor { .. } | ForgetPath(_)) {
            stand_in.handle(value.clone(), exchange);
        }
        self.is_config_stale |= matches!(value, ForgetPath(_));
        self.commands.values.push_back(value);
    }

    /// Notes whether a value for control may change the configuration of the half.
    pub(super) fn note_control(&mut self, value: &ToControl) {
        let is_routine = matches!(
            value,
            ToControl::PacketAccepted { .. }
                | ToControl::ElicitingSent { .. }
                | ToControl::PathState { .. }
                | ToControl::Migrated { .. }
                | ToControl::AddressValidated(_)
                | ToControl::NewToken(_)
                | ToControl::Trailer(_)
                | ToControl::RetireRemoteId { .. }
                | ToControl::RemoteIdsChanged
        );
        self.is_config_stale |= !is_routine;
    }

    /// Notes whether a value for the send half may change the configuration of the receive half.
    pub(super) fn note_send(&mut self, value: &ToSend) {
        use ControlFrame::{MaxPathId, NewConnectionId};
        self.is_config_stale |= matches!(
            value,
            ToSend::Path(ToPath::Open { .. })
                | ToSend::Path(ToPath::Forget(_))
                | ToSend::Control(MaxPathId(_) | NewConnectionId { .. })
        );
    }
}

impl Connection {
    /// Detaches the receive half, to be run on another processor until it is
    /// [attached](Self::attach) again. None during the handshake, once the connection closes, and
    /// if it is detached already.
    ///
    /// Meanwhile everything that arrives is to be passed to the detached half, and streams and
    /// datagrams are accepted and read there: these calls find nothing here.
    #[must_use]
    pub fn detach(&mut self) -> Option<DetachedReceiveHalf> {
        if !self.can_detach() {
            return None;
        }
        debug_assert!(self.receive.exchange.is_empty(), "values are delivered before a call returns");
        self.record(|journal| journal.writer.detached());
        let journal = self.receive.journal.as_mut().map(|journal| journal.detach());
        let config = self.open_config();
        let stand_in = self.receive.half.stand_in(self.side, self.control.config());
        let half = std::mem::replace(&mut self.receive.half, stand_in);
        let config_addresses = self.send.addresses().collect();
        self.detached = Some(Box::new(Detached { stats: half.stats(), config_addresses, ..Detached::default() }));
        Some(DetachedReceiveHalf::new(half, config, self.receive.unauthentic_count, journal))
    }

    /// Whether [`detach`](Self::detach) would detach the receive half.
    pub fn can_detach(&self) -> bool {
        self.detached.is_none() && self.control.is_confirmed()
    }

    /// Whether the receive half is detached.
    pub fn is_detached(&self) -> bool {
        self.detached.is_some()
    }

    /// Values for the detached receive half that were not passed on yet.
    pub(crate) fn pending_commands(&self) -> usize {
        self.detached.as_ref().map_or(0, |detached| detached.commands.values.len())
    }

    /// Fills `commands`, which are empty, with the values for the detached receive half; false if
    /// there are none.
    #[must_use]
    pub fn poll_commands(&mut self, commands: &mut ReceiveCommands) -> bool {
        debug_assert!(commands.is_empty(), "commands are taken before they are filled again");
        let Some(mut detached) = self.detached.take() else { return false };
        // A path may also move back without any value of the exchange.
        let has_moved = !self.send.addresses().eq(detached.config_addresses.iter().copied());
        if (std::mem::take(&mut detached.is_config_stale) || has_moved) && self.control.is_confirmed() {
            detached.commands.config = Some(Box::new(self.open_config()));
            detached.config_addresses.clear();
            detached.config_addresses.extend(self.send.addresses());
        }
        std::mem::swap(&mut detached.commands, commands);
        let has_some = !commands.is_empty();
        if has_some {
            detached.commands_given += 1;
            commands.number = detached.commands_given;
        }
        self.detached = Some(detached);
        if has_some {
            self.record_and_flush(|journal| journal.writer.gave(tag::GAVE_COMMANDS, commands.number));
        }
        has_some
    }

    /// Takes a report of the detached receive half. To be called before a plan is asked for and
    /// before timers fire, in the order in which the reports were made.
    pub fn handle_report(&mut self, now: Instant, report: &mut ReceiveReport) {
        if report.is_empty() {
            // Its other fields may be left from an earlier report, even of another connection.
            return;
        }
        self.record(|journal| journal.writer.took(tag::TOOK_REPORT, now, report.number));
        self.take_report(now, report);
    }

    fn take_report(&mut self, now: Instant, report: &mut ReceiveReport) {
        if let Some(at) = report.arrived_at {
            if self.control.is_idle_too_long(at) {
                // An arrival after the idle timeout is no sign of life: see `note_arrival`.
                self.on_timeout(now);
            }
            self.quiet_timer.note_busy(at);
        }
        self.receive.half.refresh(&report.snapshot);
        if let Some(detached) = &mut self.detached {
            std::mem::swap(&mut detached.stats, &mut report.stats);
        }
        // Values name acknowledged ranges by their position.
        debug_assert!(
            self.receive.exchange.is_empty() && self.receive.exchange.ranges.is_empty(),
            "values are delivered"
        );
        std::mem::swap(&mut self.receive.exchange, &mut report.exchange);
        self.settle(now);
        if let Some(error) = report.failure.take() {
            self.fail(now, error);
            self.settle(now);
        }
        report.clear();
    }

    /// Takes the receive half back, with what it has not reported yet.
    pub fn attach(&mut self, now: Instant, mut other: DetachedReceiveHalf) {
        // Its entries come before all that the connection writes from now on.
        other.core.journal = None;
        self.record(|journal| journal.writer.attached(now));
        if let Some(journal) = &mut self.receive.journal {
            journal.writer.attach();
        }
        let mut report = ReceiveReport::default();
        if other.poll_report(&mut report) {
            self.take_report(now, &mut report);
        }
        let Some(mut detached) = self.detached.take() else { return };
        for value in detached.commands.values.drain(..) {
            other.core.half.handle(value, &mut self.receive.exchange);
        }
        let stand_in = std::mem::replace(&mut self.receive.half, other.core.half);
        self.receive.half.take_acknowledged(&stand_in);
        self.receive.unauthentic_count = other.core.unauthentic_count;
        while let Some(event) = other.core.events.pop() {
            self.receive.events.push(event);
        }
        if let Some(keys) = &other.config.keys {
            for path in &other.config.paths {
                self.control.note_phase_from(path.id, keys.epoch, path.phase_from);
            }
        }
        self.settle(now);
    }

    /// The configuration with which a detached receive half opens what arrives.
    fn open_config(&mut self) -> OpenConfig {
        let keys = self.control.one_rtt();
        let phase_from = |path: PathId| self.control.one_rtt_of(path).and_then(|keys| keys.phase_from);
        let path = |(id, addresses)| OpenConfigPath { id, addresses, phase_from: phase_from(id) };
        let paths = self.send.addresses().map(path).collect();
        OpenConfig {
            keys,
            ids: self.control.ids().collect(),
            paths,
            max_path: self.control.max_path(),
            ignore_fixed_bit: self.control.config().grease,
        }
    }
}
