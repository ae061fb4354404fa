//! The receive half of a host, detached from its connection whenever that is possible.

use tcp::{Arrival, Connection, DetachedReceiveHalf, Read, ReceiveReport};
use units::Instant;

/// Does the work of a receive worker, in lock-step with the connection.
#[derive(Default)]
pub(crate) struct Split {
    /// Whether the receive half is detached when possible.
    pub(crate) is_wanted: bool,
    half: Option<DetachedReceiveHalf>,
    report: ReceiveReport,
    /// Number of detachments, followed by counts of the exchange.
    pub(crate) detached: u64,
    pub(crate) reports: u64,
    pub(crate) commands: u64,
}

impl Split {
    /// Detaches the half, or attaches it if the connection has ended.
    pub(crate) fn update(&mut self, now: Instant, connection: &mut Connection) {
        if connection.close_reason().is_some() {
            self.attach(now, connection);
        } else if self.is_wanted && self.half.is_none() {
            self.half = connection.detach();
            self.detached += u64::from(self.half.is_some());
        }
    }

    /// Keeps the half attached from now on.
    pub(crate) fn release(&mut self, now: Instant, connection: &mut Connection) {
        self.is_wanted = false;
        self.attach(now, connection);
    }

    fn attach(&mut self, now: Instant, connection: &mut Connection) {
        if let Some(half) = self.half.take() {
            connection.attach(now, half);
        }
    }

    pub(crate) fn read(&mut self, connection: &mut Connection) -> Read {
        match &mut self.half {
            Some(half) => half.read(usize::MAX),
            None => connection.read(usize::MAX),
        }
    }

    pub(crate) fn handle_segment(&mut self, now: Instant, connection: &mut Connection, mut arrival: Arrival) {
        if let Some(half) = &mut self.half {
            if !half.handle_segment(now, &mut arrival) {
                return;
            }
            self.attach(now, connection);
        }
        connection.handle_segment(now, arrival);
    }

    /// Passes reports, before plans and timers.
    pub(crate) fn report(&mut self, now: Instant, connection: &mut Connection) {
        if let Some(half) = &mut self.half
            && half.poll_report(&mut self.report)
        {
            connection.handle_report(now, &mut self.report);
            self.reports += 1;
        }
    }

    /// Passes commands, before a plan leaves.
    pub(crate) fn command(&mut self, connection: &mut Connection) {
        if let Some(half) = &mut self.half {
            let has_commands = connection.has_commands();
            let commands = connection.poll_commands();
            assert_eq!(commands.is_some(), has_commands);
            if let Some(commands) = commands {
                half.handle_commands(&commands);
                self.commands += 1;
            }
        }
    }
}
