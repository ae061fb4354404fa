//! [`TunnelEnd`]: a device and the threads that serve it, as each end of a tunnel has them.

use std::io;
use std::sync::Arc;

use net::tun::Tun;
use quic_endpoint::identity::KeyPair;

use super::destination::Flows;
use super::device::{DeviceCounters, Writer};
use super::device_events::DeviceEvents;
use super::entry::{Entry, EntryParts};
use super::in_place_bytes_max;
use super::peers::{Peer, Peers};
use super::terminate::terminator::{Termination, Terminator, TerminatorError};
use super::wake::WakeEvent;

/// Why an end of a tunnel has not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The process has too many open files.
    #[error("{0}")]
    Descriptor(io::Error),
    /// There is no TCP for terminated connections.
    #[error("{0}")]
    Terminator(TerminatorError),
}

/// An end of a tunnel. Its threads end when this is dropped.
pub struct TunnelEnd {
    /// The device.
    pub tun: Tun,
    entry: Entry,
    terminator: Arc<Terminator>,
    /// The peers, none at first.
    pub peers: Arc<Peers>,
    /// Counts packets of the device.
    pub counters: Arc<DeviceCounters>,
}

impl TunnelEnd {
    /// Begins to take packets from `tun`, for no peers yet. The flows are numbered by a secret of `key`. The endpoint
    /// whose handler `events` is reads the device, too.
    ///
    /// # Errors
    /// If the system refuses a descriptor or a thread.
    pub fn start(
        tun: Tun,
        mtu: u16,
        key: &KeyPair,
        termination: Termination<'_>,
        flows: Flows,
        events: Arc<DeviceEvents>,
    ) -> Result<Self, StartError> {
        let wake = WakeEvent::new().map_err(StartError::Descriptor)?;
        let peers = Arc::new(Peers::new(wake.clone()));
        let counters = Arc::new(DeviceCounters::default());
        let secret = key.derive_secret("flows of a tunnel");
        let seed = u64::from_be_bytes(*secret.first_chunk().expect("it has 32 bytes"));
        let of_stack = DeviceEvents::new().map_err(StartError::Descriptor)?;
        let handler = Arc::clone(&of_stack);
        let terminator = Arc::new(
            Terminator::start(&tun, mtu, &peers, termination, flows.urgent, handler).map_err(StartError::Terminator)?,
        );
        let entry = Entry::start(EntryParts {
            tun: tun.clone(),
            peers: Arc::clone(&peers),
            wake,
            counters: Arc::clone(&counters),
            terminator: Arc::clone(&terminator),
            seed,
            flows,
            events: [events, of_stack],
            in_place_bytes_max: in_place_bytes_max(),
        });
        Ok(Self { tun, entry, terminator, peers, counters })
    }

    /// Whether the thread that reads the device has ended, because the device is gone.
    pub fn has_ended(&self) -> bool {
        self.entry.has_ended()
    }

    /// Answers the streams of a peer, which are terminated connections, until its connection ends.
    pub fn serve(&self, peer: &Arc<Peer>) {
        self.terminator.serve(peer);
    }

    /// Writes packets of a peer to the device.
    pub fn writer(&self) -> Writer {
        Writer::new(self.tun.clone(), Arc::clone(&self.counters))
    }
}
