//! The application of a simulated host, with the handles of its connection.

use std::sync::Arc;
use std::task::{Poll, Waker};

use driver::shared::AcceptOutcome;
use quic::{PathId, Side};
use quic_driver::{Connect, ConnectionHandle, QuicShared};
use units::Instant;

use super::addresses::address;
use super::runtime::VirtualRuntime;
use crate::apps::App;
use crate::apps::handles::{EventQueue, HandleStreams};
use crate::connection_setup::PathPlan;
use crate::measurements::Measurements;

/// The application of one host.
pub(crate) struct Application {
    app: App,
    events: Arc<EventQueue>,
    shared: Arc<QuicShared>,
    runtime: VirtualRuntime,
    /// Connection: at the client from the start, at the server once it is accepted.
    connection: Option<ConnectionHandle<VirtualRuntime>>,
    /// Streams, once the connection is established.
    streams: Option<HandleStreams<VirtualRuntime>>,
}

impl Application {
    pub(crate) fn new(app: App, shared: Arc<QuicShared>, runtime: VirtualRuntime) -> Self {
        Self { app, events: Arc::default(), shared, runtime, connection: None, streams: None }
    }

    /// Begins a connection over this path.
    ///
    /// # Errors
    /// Returns the reason why it cannot begin.
    pub(crate) fn connect(&mut self, connect: Connect, path: usize) -> Result<(), String> {
        let remote = address(path, Side::Server);
        let handle = ConnectionHandle::connect(&self.runtime, &self.shared, remote, connect, Some(path), (0, None));
        self.connection = Some(handle.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Returns when its next item begins.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.app.timeout()
    }

    /// Records that the connection is established.
    pub(crate) fn on_connected(&mut self, now: Instant) {
        self.app.on_connected(now);
    }

    /// Takes the connection when it is established. Returns true once.
    pub(crate) fn take_established(&mut self) -> bool {
        if self.streams.is_some() {
            return false;
        }
        // Polled after each turn, so no wake-up is needed.
        let is_established = match &self.connection {
            Some(connection) => matches!(connection.poll_connected(Waker::noop()), Poll::Ready(Ok(()))),
            None => match self.shared.poll_accept(Waker::noop()) {
                AcceptOutcome::Connection(cell) => {
                    self.connection = Some(ConnectionHandle::from_accepted(cell, self.runtime.clone()));
                    true
                }
                AcceptOutcome::Pending | AcceptOutcome::Stopped => false,
            },
        };
        if let Some(connection) = self.connection.as_ref().filter(|_| is_established) {
            self.streams = Some(HandleStreams::new(&self.events, connection.clone()));
        }
        is_established
    }

    /// Requests the other paths of the plan.
    ///
    /// # Errors
    /// Returns the path, and the reason why it cannot be opened.
    pub(crate) fn open_paths(&self, plan: &PathPlan) -> Result<(), (usize, String)> {
        let Some(connection) = &self.connection else { return Ok(()) };
        for &(path, is_backup) in &plan.others {
            let requested = connection.open_path(path, address(path, Side::Server), is_backup);
            requested.map_err(|error| (path, error.to_string()))?;
        }
        if plan.is_first_backup {
            let requested = connection.set_path_backup(PathId::ZERO, true);
            requested.map_err(|error| (plan.first, error.to_string()))?;
        }
        Ok(())
    }

    /// Handles all events, then continues due work.
    pub(crate) fn run(&mut self, now: Instant, measurements: &mut Measurements) {
        let Some(streams) = &mut self.streams else { return };
        while let Some(event) = self.events.pop() {
            self.app.on_event(now, &event, streams, measurements);
        }
        self.pump(now, measurements);
    }

    /// Begins due items and answers requests, without handling events.
    pub(crate) fn pump(&mut self, now: Instant, measurements: &mut Measurements) {
        if let Some(streams) = &mut self.streams {
            self.app.pump(now, streams, measurements);
        }
    }

    /// Permits the application to read `bytes` more bytes. Reading is limited from the first call
    /// on.
    pub(crate) fn allow_reading(&mut self, bytes: usize) {
        if let Some(streams) = &mut self.streams {
            streams.allow_reading(bytes);
        }
    }

    /// Returns whether it has events to handle.
    pub(crate) fn has_events(&self) -> bool {
        self.streams.is_some() && self.events.has_some()
    }
}
