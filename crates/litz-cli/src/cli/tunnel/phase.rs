//! What a client does now, for `litz tunnel status`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use litz::identity::Fingerprint;
use serde_json::{Value, json};
use tunnel_end::device::DeviceCounters;
use tunnel_end::peers::Peer;

use super::status::{device_json, peer_json};
use super::upkeep_report::UpkeepReport;

/// What the client of a device does now. Clones are the same.
#[derive(Clone)]
pub(super) struct ClientPhase {
    device: String,
    server: Fingerprint,
    phase: Arc<Mutex<Phase>>,
    /// What is left out of what the server assigns.
    left_out: Arc<Mutex<Vec<Value>>>,
    upkeep: UpkeepReport,
}

enum Phase {
    /// It connects, and the last attempt has failed for this reason.
    Connecting(Option<String>),
    Up(Arc<Peer>, Arc<DeviceCounters>),
}

impl ClientPhase {
    /// Of a client that begins to connect.
    pub(super) fn new(device: &str, server: Fingerprint, upkeep: UpkeepReport) -> Self {
        Self {
            device: device.to_owned(),
            server,
            phase: Arc::new(Mutex::new(Phase::Connecting(None))),
            left_out: Arc::default(),
            upkeep,
        }
    }

    /// The client connects, because of `reason`.
    pub(super) fn connect(&self, reason: String) {
        *lock(&self.phase) = Phase::Connecting(Some(reason));
    }

    /// The tunnel to this server is up, with a device that has these counters.
    pub(super) fn up(&self, server: Arc<Peer>, counters: Arc<DeviceCounters>) {
        *lock(&self.phase) = Phase::Up(server, counters);
    }

    /// This is left out of what the server assigns.
    pub(super) fn leave_out(&self, left_out: Vec<Value>) {
        *lock(&self.left_out) = left_out;
    }

    /// The answer to `litz tunnel status`.
    pub(super) fn as_json(&self) -> Value {
        // The statistics of a connection wait for its thread: not with the lock.
        let (state, reason, server) = match &*lock(&self.phase) {
            Phase::Connecting(reason) => ("connecting", reason.clone(), None),
            Phase::Up(server, counters) => ("up", None, Some((Arc::clone(server), device_json(counters)))),
        };
        let peers: Vec<Value> = server.iter().map(|(server, _)| peer_json(server)).collect();
        let counters = server.map(|(_, counters)| counters);
        json!({
            "device": self.device, "server": self.server.to_string(), "role": "client", "state": state, "reason": reason,
            "left_out": *lock(&self.left_out), "counters": counters, "peers": peers, "missing": self.upkeep.missing(),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
