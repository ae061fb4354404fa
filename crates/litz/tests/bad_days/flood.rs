//! A hundred thousand datagrams of garbage a second. How much of the goodput stays is measured by `benches/flood.rs`, on a
//! quiet machine; here it is proven that the flood came, that everything arrives, and that goodput does not collapse.

use std::sync::{Mutex, PoisonError};

use units::{Duration, Rate};

use crate::garbage::{FLOOD_RATE, Kind, Plan, Target, transfer};

/// As short as it can be and still say something.
const SPAN: Duration = Duration::from_millis(1_500);

/// Half of what a core of any age carries with unoptimised code: a processor that has nothing left for the flood says more
/// about itself than about the flood.
const CAP: Rate = Rate::from_mbps(200);

/// Floods come one at a time, so that what is compared is comparable.
static TURN: Mutex<()> = Mutex::new(());

fn survives(kind: Kind) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = Plan { kind, target: Target::Receiver, rate: FLOOD_RATE, cap: Some(CAP), span: SPAN };
    let under = transfer(plan);
    let beside = transfer(Plan { target: Target::Elsewhere, ..plan });
    for run in [&under, &beside] {
        // A machine that does other things as well may not get round to all of it.
        let least = (FLOOD_RATE / 5) as f64 * run.span.as_secs_f64();
        assert!(run.offered as f64 >= least, "{kind:?}: no flood: {} datagrams in {}", run.offered, run.span);
    }
    let least = under.offered / 2;
    assert!(under.taken >= least, "{kind:?}: {} of {} datagrams arrived", under.taken, under.offered);
    assert!(beside.taken * 100 < under.taken, "{kind:?}: {} strays", beside.taken);
    match kind {
        Kind::Noise => assert_eq!((under.stray, under.unauthentic), (0, 0), "{under:?}"),
        // From elsewhere, too, it may be the client's, whose address has changed: only the key tells.
        Kind::Addressed | Kind::Forged => assert!(under.unauthentic >= least, "{under:?}"),
    }
    let ratio = under.goodput() / beside.goodput();
    let lost = [under.lost, beside.lost];
    assert!(ratio >= 0.5, "{kind:?}: {:.0} and {:.0} Mb/s, lost {lost:?}", under.goodput(), beside.goodput());
}

#[test]
fn noise_at_the_receivers_port_is_survived() {
    survives(Kind::Noise);
}

#[test]
fn garbage_with_the_connections_id_is_survived() {
    survives(Kind::Addressed);
}

#[test]
fn garbage_with_the_connections_id_and_the_senders_address_is_survived() {
    survives(Kind::Forged);
}
