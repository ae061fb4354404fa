//! Metered runs of a whole stack on one processor, over a device in memory whose other side is a script.

use bytes::Bytes;
use layers::Stack;
use litz::{Activity, Costs, Placement};
use net::MonotonicClock;
use scripted_peer::round::ROUND_BYTES;
use scripted_peer::tcp::{TcpEnd, TcpSetup};
use transfer::CancelToken;
use units::Duration;

use super::super::failure::Failure;
use super::super::row::End;

/// Bytes that the application writes at a time.
const CHUNK_LEN: usize = 64 << 10;

/// Time that opens the window and fills the caches.
const WARM_UP: Duration = Duration::from_millis(50);

/// Bytes of a round of the receiving end that are read before it is measured: until then the meter counts
/// what was made in advance.
const UNMEASURED_BYTES: u64 = 1 << 20;

/// What one end has done in a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Spent {
    /// By interval: data of the receiving end are made between them.
    costs: Vec<Costs>,
    /// Segments with data.
    segments: u64,
}

impl Spent {
    /// Nanoseconds of `activity` per segment.
    pub(super) fn ns(&self, activity: Activity) -> f64 {
        self.total_ns(activity) as f64 / self.segments.max(1) as f64
    }

    /// The part of the time in which other programs had the processor, 0 to 1.
    pub(super) fn taken_away_share(&self) -> f64 {
        let active = Activity::ALL.into_iter().filter(|activity| *activity != Activity::Waiting);
        let all: u64 = active.map(|activity| self.total_ns(activity)).sum();
        self.total_ns(Activity::TakenAway) as f64 / all.max(1) as f64
    }

    fn total_ns(&self, activity: Activity) -> u64 {
        self.costs.iter().map(|costs| costs.spent(activity).as_nanos()).sum()
    }
}

/// Measures one end for `time`.
pub(super) fn run(end: End, payload: usize, time: Duration, cancel: &CancelToken) -> Result<Spent, Failure> {
    let stack = Stack { cipher: None, digest: None };
    let setup = TcpSetup { stack, payload, placement: Placement::Inline, cores: Vec::new(), metered: true };
    let tcp = TcpEnd::start(&setup, None).map_err(Failure::Error)?;
    let clock = MonotonicClock::start();
    let spent = match end {
        End::Sending => {
            send(&tcp, &clock, WARM_UP, cancel)?;
            send(&tcp, &clock, time, cancel)?
        }
        End::Receiving => receive(&tcp, payload, &clock, time, cancel)?,
    };
    tcp.check().map_err(Failure::Error)?;
    tcp.close();
    if spent.segments == 0 {
        return Err(Failure::Error("a run was too short to transfer data: use a longer --time".to_owned()));
    }
    Ok(spent)
}

fn costs(tcp: &TcpEnd) -> Result<Costs, Failure> {
    tcp.costs().ok_or_else(|| Failure::Error("the stack has no meter".to_owned()))
}

fn send(tcp: &TcpEnd, clock: &MonotonicClock, time: Duration, cancel: &CancelToken) -> Result<Spent, Failure> {
    let chunk = Bytes::from(vec![7; CHUNK_LEN]);
    let (begin, until) = (costs(tcp)?, clock.now() + time);
    while clock.now() < until {
        if cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        tcp.write(chunk.clone()).map_err(Failure::Error)?;
    }
    let costs = costs(tcp)?.since(&begin);
    Ok(Spent { segments: costs.sent.datagrams, costs: vec![costs] })
}

/// In rounds, because the script's packets are made in advance.
fn receive(
    tcp: &TcpEnd,
    payload: usize,
    clock: &MonotonicClock,
    time: Duration,
    cancel: &CancelToken,
) -> Result<Spent, Failure> {
    let mut feeder = tcp.feeder(payload).map_err(Failure::Error)?;
    let (mut spent, mut measured, mut buffer) = (Spent::default(), Duration::ZERO, Vec::new());
    // The first round opens the window.
    let mut is_warm = false;
    while measured < time || !is_warm {
        if cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        let first = feeder.bytes();
        tcp.device().feed(feeder.make(ROUND_BYTES));
        let mut read = |mut from: u64, to: u64| {
            while from < to {
                let bytes = tcp.read().map_err(Failure::Error)?;
                // As a program that reads into a buffer of its own.
                buffer.clear();
                buffer.extend_from_slice(&bytes);
                from += bytes.len() as u64;
            }
            Ok(from)
        };
        let at = read(first, first + UNMEASURED_BYTES)?;
        let (begin, began_at) = (costs(tcp)?, clock.now());
        read(at, feeder.bytes())?;
        if is_warm {
            measured += clock.now().saturating_since(began_at);
            let costs = costs(tcp)?.since(&begin);
            spent.segments += costs.received.datagrams;
            spent.costs.push(costs);
        }
        is_warm = true;
    }
    Ok(spent)
}
