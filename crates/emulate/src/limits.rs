//! Measures this machine's emulation limits: packets per second through a link, and the delay that
//! the emulator adds to the model's.
//!
//! Both ends of each measurement run on this machine and share its processors with the link, as in
//! tests. The [`baseline`] measures sending, waking and receiving without a link.

mod measure;

use std::net::{Ipv4Addr, SocketAddr};

use net::{DatagramSocket, MonotonicClock, OpenError, UdpSocket, UdpSocketOptions};
use netem::LinkConfig;
use units::Duration;

use super::error::StartError;
use super::relay::{Relay, RelayLink};
use super::report::Lateness;
use measure::{Endpoints, added_delay, packets_per_second};

pub use measure::IsCancelled;

/// Payload of the measured datagrams: the size that every path supports (RFC 9000, section 14.1).
pub const DATAGRAM_BYTES: usize = 1200;

/// Datagrams per batch of an application with segmentation offload.
pub const BATCH_DATAGRAMS: usize = 40;

/// Delay of the link whose precision is measured.
pub const PROBED_DELAY: Duration = Duration::from_millis(5);

/// The limits of one kind of link.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Datagrams of [`DATAGRAM_BYTES`] per second through a link without rate and delay, sent in
    /// batches of [`BATCH_DATAGRAMS`].
    pub packets_per_second_batched: u64,
    /// The same, sent one by one.
    pub packets_per_second_single: u64,
    /// Time in excess of [`PROBED_DELAY`] that single datagrams took between the applications, on
    /// an idle link.
    pub added_delay: Percentiles,
    /// The link's own measurement: how much later than the model's time datagrams were sent.
    pub lateness: Lateness,
}

/// A distribution of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    /// The median.
    pub p50: Duration,
    /// The 90th percentile.
    pub p90: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The maximum.
    pub max: Duration,
    /// Number of values.
    pub count: usize,
}

/// A failed measurement.
#[derive(Debug)]
#[non_exhaustive]
pub enum LimitsError {
    /// The link could not be started.
    Start(StartError),
    /// A socket could not be opened.
    Open(OpenError),
    /// Another system error.
    Io(std::io::Error),
    /// The caller cancelled the measurement.
    Cancelled,
}

/// Measures the time of a datagram over loopback without a link. Takes a few seconds. All
/// measurements call `is_cancelled` many times a second and end early if it returns true.
///
/// # Errors
/// Returns a [`LimitsError`].
pub fn baseline(is_cancelled: IsCancelled<'_>) -> Result<Percentiles, LimitsError> {
    let (sender, receiver) = (open_local()?, open_local()?);
    let to = receiver.local_addr()?;
    added_delay(Endpoints { sender, receiver, to, clock: MonotonicClock::start() }, Duration::ZERO, is_cancelled)
}

/// Measures a relay, for about `span` per value.
///
/// # Errors
/// Returns a [`LimitsError`].
pub fn relay(span: Duration, is_cancelled: IsCancelled<'_>) -> Result<Limits, LimitsError> {
    let through = |config: LinkConfig| -> Result<(Relay, Endpoints), LimitsError> {
        let (sender, receiver) = (open_local()?, open_local()?);
        let link = RelayLink {
            name: "limits".into(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            server: Some(receiver.local_addr()?),
            forward: config.clone(),
            backward: config,
        };
        let relay = Relay::start(vec![link], 1).map_err(LimitsError::Start)?;
        let to = relay.local_addr(0);
        Ok((relay, Endpoints { sender, receiver, to, clock: MonotonicClock::start() }))
    };
    let rate = |batch| -> Result<u64, LimitsError> {
        let (_relay, endpoints) = through(measure::open_config())?;
        packets_per_second(endpoints, batch, span, is_cancelled)
    };
    let (packets_per_second_batched, packets_per_second_single) = (rate(BATCH_DATAGRAMS)?, rate(1)?);
    let (relay, endpoints) = through(measure::delayed_config())?;
    let added_delay = added_delay(endpoints, PROBED_DELAY, is_cancelled)?;
    let lateness = relay.stop().reports.first().map(|report| report.forward.lateness).unwrap_or_default();
    Ok(Limits { packets_per_second_batched, packets_per_second_single, added_delay, lateness })
}

/// Measures a link between two namespaces, for about `span` per value. Creates the namespaces, and
/// removes them even on cancellation. Needs root.
///
/// # Errors
/// Returns a [`LimitsError`].
#[cfg(target_os = "linux")]
pub fn tunnels(span: Duration, is_cancelled: IsCancelled<'_>) -> Result<Limits, LimitsError> {
    use crate::{Namespace, Running, Side, TunLink, Tunnels};

    const LEFT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const RIGHT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

    let [left, right] = Namespace::create_pair("litz-limits")?;
    let side = |namespace: &Namespace, address: Ipv4Addr| Side {
        namespace: Some(namespace.name().to_owned()),
        addresses: vec![crate::Cidr { address: address.into(), prefix_bits: 24 }],
    };
    let open = |namespace: &Namespace, address: Ipv4Addr| -> Result<UdpSocket, LimitsError> {
        let options = UdpSocketOptions::new(SocketAddr::from((address, 0)));
        let panicked = |_| std::io::Error::other("a thread panicked");
        namespace.run(move || UdpSocket::open(&options))?.join().map_err(panicked)??.map_err(LimitsError::Open)
    };
    let through = |config: LinkConfig| -> Result<(Running, Endpoints), LimitsError> {
        let link = TunLink {
            name: "limits".into(),
            left: side(&left, LEFT),
            right: side(&right, RIGHT),
            mtu: 1500,
            forward: config.clone(),
            backward: config,
        };
        let running = Tunnels::start(vec![link], 1).map_err(LimitsError::Start)?;
        let (sender, receiver) = (open(&left, LEFT)?, open(&right, RIGHT)?);
        let to = receiver.local_addr()?;
        Ok((running, Endpoints { sender, receiver, to, clock: MonotonicClock::start() }))
    };
    let rate = |batch| -> Result<u64, LimitsError> {
        let (_running, endpoints) = through(measure::open_config())?;
        packets_per_second(endpoints, batch, span, is_cancelled)
    };
    let (packets_per_second_batched, packets_per_second_single) = (rate(BATCH_DATAGRAMS)?, rate(1)?);
    let (running, endpoints) = through(measure::delayed_config())?;
    let added_delay = added_delay(endpoints, PROBED_DELAY, is_cancelled)?;
    let lateness = running.stop().reports.first().map(|report| report.forward.lateness).unwrap_or_default();
    Ok(Limits { packets_per_second_batched, packets_per_second_single, added_delay, lateness })
}

fn open_local() -> Result<UdpSocket, LimitsError> {
    UdpSocket::open(&UdpSocketOptions::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))).map_err(LimitsError::Open)
}

impl Percentiles {
    /// Returns the percentiles of `times`, in any order.
    #[must_use]
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            // The smallest value that is not exceeded by this percentage of values.
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times.get(rank - 1).copied().unwrap_or_default()
        };
        Self { p50: at(50), p90: at(90), p99: at(99), max: at(100), count: times.len() }
    }
}

impl std::fmt::Display for LimitsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Start(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for LimitsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start(error) => Some(error),
            Self::Open(error) => Some(error),
            Self::Io(error) => Some(error),
            Self::Cancelled => None,
        }
    }
}

impl From<std::io::Error> for LimitsError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_match_the_sorted_times() {
        let times = (1..=200).rev().map(Duration::from_micros).collect();
        let percentiles = Percentiles::of(times);
        let micros = [percentiles.p50, percentiles.p90, percentiles.p99, percentiles.max].map(Duration::as_micros);
        assert_eq!((micros, percentiles.count), ([100, 180, 198, 200], 200));
        assert_eq!(Percentiles::of(Vec::new()), Percentiles::default());
    }

    #[test]
    fn a_relay_is_measured() {
        let limits = relay(Duration::from_millis(100), &|| false).unwrap();
        assert!(limits.packets_per_second_batched > 1000 && limits.packets_per_second_single > 1000, "{limits:?}");
        assert!(limits.added_delay.count > 0 && limits.added_delay.p50 < Duration::from_millis(5), "{limits:?}");
        assert!(limits.lateness.count > 0);
    }

    #[test]
    fn cancelled_measurements_end() {
        let clock = MonotonicClock::start();
        let cancelled = |error: LimitsError| matches!(error, LimitsError::Cancelled);
        assert!(baseline(&|| true).is_err_and(cancelled));
        let later = || clock.now().since_start() > Duration::from_millis(100);
        assert!(relay(Duration::from_secs(3600), &later).is_err_and(cancelled));
        assert!(clock.now().since_start() < Duration::from_secs(10));
    }
}
