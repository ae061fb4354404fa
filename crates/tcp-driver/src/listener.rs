//! [`ListenerHandle`]: an application's view of a listening port.

use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::application::TcpShared;
use crate::handle::{Runtime, StreamHandle};
use crate::listeners::{Listen, ListenError, ListeningPorts, Port};

/// A port that accepts connections, until the last clone is dropped. Peers not accepted by then are
/// reset.
pub struct ListenerHandle<R: Runtime> {
    guard: Arc<Guard<R>>,
}

impl<R: Runtime> Clone for ListenerHandle<R> {
    fn clone(&self) -> Self {
        Self { guard: Arc::clone(&self.guard) }
    }
}

struct Guard<R: Runtime> {
    ports: Arc<ListeningPorts>,
    port: Arc<Port>,
    /// State shared with any driver of the stack: they have one queue for the port.
    shared: Arc<TcpShared>,
    runtime: R,
}

impl<R: Runtime> Guard<R> {
    fn close(&self) {
        // This comes first, so that no connection begins that cannot be accepted.
        self.ports.remove(&self.port);
        for cell in self.shared.common.close_queue(self.port.queue) {
            cell.note_accepted();
            StreamHandle::new(cell, self.runtime.clone()).abort();
        }
    }
}

impl<R: Runtime> Drop for Guard<R> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<R: Runtime> ListenerHandle<R> {
    /// Listens on `port` of a stack; zero lets the stack choose. `ports` belongs to the stack's
    /// drivers; `shared` belongs to any one of them.
    ///
    /// # Errors
    /// Fails if the port has a listener, or the stack is closed.
    pub fn listen(
        runtime: &R,
        shared: &Arc<TcpShared>,
        ports: &Arc<ListeningPorts>,
        port: u16,
        bounds: Listen,
    ) -> Result<Self, ListenError> {
        let port = ports.listen(shared, port, bounds)?;
        let (ports, shared, runtime) = (Arc::clone(ports), Arc::clone(shared), runtime.clone());
        Ok(Self { guard: Arc::new(Guard { ports, port, shared, runtime }) })
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.guard.port.port
    }

    /// Returns the runner of its stack.
    pub fn runtime(&self) -> &R {
        &self.guard.runtime
    }

    /// Returns the next connection of a peer, in the order in which the handshakes completed.
    /// Returns `None` if the listener or the stack is closed.
    pub fn poll_accept(&self, waker: &Waker) -> Poll<Option<StreamHandle<R>>> {
        StreamHandle::poll_accept(&self.guard.runtime, &self.guard.shared, &self.guard.port, waker)
    }

    /// Stops accepting connections, and resets the peers not accepted yet. Repeated calls have no
    /// effect.
    pub fn close(&self) {
        self.guard.close();
    }
}
