//! A flood of a hundred thousand garbage datagrams per second. The benchmark `benches/flood.rs`
//! measures the remaining goodput on an idle machine. These tests prove that the flood arrived,
//! that all data is delivered, and that goodput does not collapse, also while other programs use
//! the processors.

use std::sync::{Mutex, PoisonError};

use units::{Duration, Rate};

use crate::garbage::{FLOOD_RATE, Kind, Plan, Target, transfer};

/// Duration of a run, as short as possible with a meaningful result.
const SPAN: Duration = Duration::from_millis(1_500);

/// Half of what a core of any age carries with unoptimised code: a processor without spare capacity
/// for the flood would measure itself and not the flood.
const CAP: Rate = Rate::from_mbps(200);

/// Minimum share of the goodput that remains under the flood. The goodput of two short runs differs
/// by more than a factor of two on a busy machine.
const LEFT_MIN: f64 = 0.1;

/// Floods run one at a time, so that their results are comparable.
static TURN: Mutex<()> = Mutex::new(());

fn check_flood(kind: Kind) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = Plan { kind, target: Target::Receiver, rate: FLOOD_RATE, cap: Some(CAP), span: SPAN };
    let under = transfer(plan);
    let baseline = transfer(Plan { target: Target::Elsewhere, ..plan });
    for run in [&under, &baseline] {
        // A busy machine may not process all datagrams.
        let least = (FLOOD_RATE / 5) as f64 * run.span.as_secs_f64();
        assert!(run.offered as f64 >= least, "{kind:?}: no flood: {} datagrams in {}", run.offered, run.span);
    }
    // The kernel drops datagrams that exceed the socket's space while the thread waits for a
    // processor.
    let least = under.offered / 5;
    assert!(under.taken >= least, "{kind:?}: {} of {} datagrams arrived", under.taken, under.offered);
    assert!(baseline.taken * 100 < under.taken, "{kind:?}: {} datagrams of garbage", baseline.taken);
    match kind {
        Kind::Noise => assert_eq!((under.stray, under.unauthentic), (0, 0), "{under:?}"),
        // A packet from another address may be the client's after an address change: only the key
        // decides.
        Kind::Addressed | Kind::Forged => assert!(under.unauthentic >= least, "{under:?}"),
    }
    let ratio = under.goodput() / baseline.goodput();
    let lost = [under.lost, baseline.lost];
    assert!(ratio >= LEFT_MIN, "{kind:?}: {:.0} and {:.0} Mb/s, lost {lost:?}", under.goodput(), baseline.goodput());
}

#[test]
fn random_datagrams_to_the_receivers_port_do_not_stop_the_data() {
    check_flood(Kind::Noise);
}

#[test]
fn garbage_with_the_connections_id_does_not_stop_the_data() {
    check_flood(Kind::Addressed);
}

#[test]
fn garbage_with_the_connections_id_and_the_senders_address_does_not_stop_the_data() {
    check_flood(Kind::Forged);
}
