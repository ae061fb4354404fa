//! What a client does now, for `litz tunnel status`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::status::{device_json, peer_json};
use crate::tunnel::device::DeviceCounters;
use crate::tunnel::peers::Peer;

/// What the client of a device does now. Clones are the same.
#[derive(Clone)]
pub(super) struct ClientPhase {
    device: String,
    phase: Arc<Mutex<Phase>>,
}

enum Phase {
    /// It connects, and the last attempt has failed for this reason.
    Connecting(Option<String>),
    Up(Arc<Peer>, Arc<DeviceCounters>),
}

impl ClientPhase {
    /// Of a client that begins to connect.
    pub(super) fn new(device: &str) -> Self {
        Self { device: device.to_owned(), phase: Arc::new(Mutex::new(Phase::Connecting(None))) }
    }

    /// The client connects, because of `reason`.
    pub(super) fn connect(&self, reason: String) {
        *self.lock() = Phase::Connecting(Some(reason));
    }

    /// The tunnel to this server is up, with a device that has these counters.
    pub(super) fn up(&self, server: Arc<Peer>, counters: Arc<DeviceCounters>) {
        *self.lock() = Phase::Up(server, counters);
    }

    /// The answer to `litz tunnel status`.
    pub(super) fn as_json(&self) -> Value {
        // The statistics of a connection wait for its thread: not with the lock.
        let (state, reason, server) = match &*self.lock() {
            Phase::Connecting(reason) => ("connecting", reason.clone(), None),
            Phase::Up(server, counters) => ("up", None, Some((Arc::clone(server), device_json(counters)))),
        };
        let peers: Vec<Value> = server.iter().map(|(server, _)| peer_json(server)).collect();
        let counters = server.map(|(_, counters)| counters);
        json!({
            "device": self.device, "role": "client", "state": state, "reason": reason, "counters": counters, "peers": peers,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
