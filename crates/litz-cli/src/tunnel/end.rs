//! [`TunnelEnd`]: a device and the threads that serve it, as each end of a tunnel has them.

use std::sync::Arc;

use litz::identity::KeyPair;
use net::tun::Tun;

use super::destination::Flows;
use super::device::{DeviceCounters, Writer};
use super::device_events::DeviceEvents;
use super::entry::{Entry, EntryParts};
use super::in_place_bytes_max;
use super::peers::Peers;
use super::terminate::terminator::{Termination, Terminator};
use super::wake::WakeEvent;

/// An end of a tunnel. Its threads end when this is dropped.
pub(crate) struct TunnelEnd {
    pub(crate) tun: Tun,
    pub(crate) entry: Entry,
    pub(crate) terminator: Arc<Terminator>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) counters: Arc<DeviceCounters>,
}

impl TunnelEnd {
    /// Begins to take packets from `tun`, for no peers yet. The flows are numbered by a secret of `key`. The endpoint
    /// whose handler `events` is reads the device, too.
    ///
    /// # Errors
    /// A message for the user: the system refuses a descriptor or a thread.
    pub(crate) fn start(
        tun: Tun,
        mtu: u16,
        key: &KeyPair,
        termination: Termination<'_>,
        flows: Flows,
        events: Arc<DeviceEvents>,
    ) -> Result<Self, String> {
        let wake = WakeEvent::new().map_err(|error| error.to_string())?;
        let peers = Arc::new(Peers::new(wake.clone()));
        let counters = Arc::new(DeviceCounters::default());
        let secret = key.derive_secret("flows of a tunnel");
        let seed = u64::from_be_bytes(*secret.first_chunk().expect("it has 32 bytes"));
        let of_stack = DeviceEvents::new().map_err(|error| error.to_string())?;
        let handler = Arc::clone(&of_stack);
        let terminator = Arc::new(Terminator::start(&tun, mtu, &peers, termination, flows.urgent, handler)?);
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

    /// Writes packets of a peer to the device.
    pub(crate) fn writer(&self) -> Writer {
        Writer::new(self.tun.clone(), Arc::clone(&self.counters))
    }
}
