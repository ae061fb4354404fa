//! [`LiveEnv`]: the environment of live drivers, with devices of the system, its clock and the
//! meter.

use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Waker;

use driver::workers::Workers;
use driver::{Activity, DriverSocket, Env, LocalSocket};
use units::Instant;

use crate::clock::Clock;
use crate::device::{BatchOf, Device, SealedOf, Served};
use crate::meter::Meter;

/// A device of a live driver or worker, with the state of its send buffer.
pub(crate) type ServedSocket<D> = DriverSocket<LiveEnv<D>>;

/// The environment of a live driver over devices of type `D`.
pub(crate) struct LiveEnv<D> {
    clock: Clock,
    /// Present if measuring is enabled.
    meter: Option<Arc<Meter>>,
    device: PhantomData<fn() -> D>,
}

impl<D: Device> LiveEnv<D> {
    pub(crate) fn new(clock: Clock, meter: Option<Arc<Meter>>) -> Self {
        Self { clock, meter, device: PhantomData }
    }
}

impl<D: Device> Env for LiveEnv<D> {
    type Protocol = D::Protocol;
    type Socket = Served<D>;
    type Offload = Workers<D::Protocol>;
    type Clock = Clock;

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn lap(&self, activity: Activity) {
        if let Some(meter) = &self.meter {
            meter.lap(activity);
        }
    }

    fn note_sent(&self, packets: &SealedOf<D>) {
        if let Some(meter) = &self.meter {
            let (count, len_bytes) = D::size_of(packets);
            meter.count_sent(count, len_bytes);
        }
    }

    fn note_received(&self, batches: &[BatchOf<D>]) {
        if let Some(meter) = &self.meter {
            meter.count_received(batches);
        }
    }
}

/// Prepares a device for the thread that `thread` wakes.
pub(crate) fn serve<D: Device>(device: D, thread: &Waker) -> ServedSocket<D> {
    LocalSocket::new(Served::new(device, thread))
}

/// Prepares a device like [`serve`], from which another thread receives.
pub(crate) fn serve_sending<D: Device>(device: D, thread: &Waker) -> ServedSocket<D> {
    LocalSocket::only_sending(Served::only_sending(device, thread))
}
