//! The receive half stays with its connection: the types of a detached one have no values.

use std::convert::Infallible;
use std::sync::Arc;

use driver::protocol::{HalfReport, HalfUpdate, ReceiveHalf};
use tcp::Tuple;
use units::Instant;

use crate::application::TcpCell;
use crate::packets::Received;
use crate::protocol::Tcp;

/// A receive half on another processor.
#[derive(Debug)]
pub struct Undetached(Infallible);

impl ReceiveHalf<Tcp> for Undetached {
    fn cell(&self) -> Option<Arc<TcpCell>> {
        match self.0 {}
    }

    fn for_each_route(&self, _each: &mut dyn FnMut(Tuple)) {
        match self.0 {}
    }

    fn absorb(&mut self, _now: Instant, _socket: usize, _batch: Received) -> Result<(), Received> {
        match self.0 {}
    }

    fn handle_update(&mut self, _now: Instant, _update: NoUpdate) -> bool {
        match self.0 {}
    }

    fn wake_readers(&mut self) {
        match self.0 {}
    }

    fn has_report(&self) -> bool {
        match self.0 {}
    }

    fn is_urgent(&self, _now: Instant) -> bool {
        match self.0 {}
    }

    fn unreported(&self) -> usize {
        match self.0 {}
    }

    fn report(&mut self) -> Option<NoReport> {
        match self.0 {}
    }
}

/// Sent to a detached half.
#[derive(Debug, Default)]
pub struct NoUpdate;

impl HalfUpdate for NoUpdate {
    type Report = NoReport;
}

/// Sent from a detached half.
#[derive(Debug)]
pub struct NoReport(Infallible);

impl HalfReport for NoReport {
    type Update = NoUpdate;
}
