//! The cost of a packet, divided into serial and parallel work, and the bound on the speedup.

use std::collections::BTreeMap;

use litz::{Activity, ActivityKind};
use serde::Serialize;

use super::run::Outcome;
use super::settings::{AppCore, Kind, Settings, Side};

/// The cost of a packet at one side, in nanoseconds, with one processor for everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Shares {
    /// Work that only one processor does: the driver's own, including socket calls unless paths are
    /// shared.
    pub(crate) serial_ns: f64,
    /// Encryption or decryption, and socket calls if processors have their own sockets.
    pub(crate) parallel_ns: f64,
    /// The application's thread: one processor at a time, but any one.
    pub(crate) application_ns: f64,
    /// Time in which the driver sleeps, falls asleep or wakes. It is not work and in no sum.
    pub(crate) waiting_ns: f64,
    /// Mean busy time of the processors other than the driver's. In no sum.
    #[serde(skip)]
    pub(crate) others_busy_ns: f64,
    /// The share of time in which each processor was busy: the driver's, then the others'.
    #[serde(skip)]
    pub(crate) busy_shares: Vec<f64>,
    /// The same by halves of the connection; none unless the halves are what is shared.
    pub(crate) halves: Option<Halves>,
    /// Active time of the receiving processor, if it is not the driver's. In no sum.
    #[serde(skip)]
    pub(crate) receiver_ns: f64,
    /// The metered time by activity.
    pub(crate) stages_ns: BTreeMap<&'static str, f64>,
    /// The share of time in which other programs had the processor, 0 to 1.
    pub(crate) taken_away_share: f64,
}

/// The cost of each half of a connection, including the application's threads on the same
/// processor, in nanoseconds per packet of both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Halves {
    /// Planning, sealing, the calls that send, and control.
    pub(crate) send_ns: f64,
    /// The calls that receive, opening, absorbing, delivery.
    pub(crate) receive_ns: f64,
    /// The part of the sending half that a pipeline does below TCP: sealing, and the calls that send.
    pub(crate) ip_send_ns: f64,
}

impl Halves {
    /// Divides the work of one driver into halves. Acknowledgements of sent data belong to the
    /// receive half.
    fn new(app_core: AppCore, outcome: &Outcome, stages_ns: &BTreeMap<&'static str, f64>) -> Self {
        let mut halves = Self::default();
        for activity in Activity::ALL.into_iter().filter(|activity| activity.kind() != ActivityKind::Idle) {
            let ns = stages_ns.get(activity.id()).copied().unwrap_or(0.0);
            match activity {
                Activity::RecvCall | Activity::Poll | Activity::Route | Activity::OpenAbsorb | Activity::HandOver => {
                    halves.receive_ns += ns;
                }
                _ => halves.send_ns += ns,
            }
        }
        let ns = |activity: Activity| stages_ns.get(activity.id()).copied().unwrap_or(0.0);
        halves.ip_send_ns = ns(Activity::Seal) + ns(Activity::SendCall);
        let directions = outcome.directions.unwrap_or_default();
        let [writing_ns, reading_ns] =
            [directions.writing, directions.reading].map(|time| time.as_nanos() as f64 / outcome.packets);
        match app_core {
            AppCore::First => halves.send_ns += writing_ns + reading_ns,
            AppCore::Last => halves.receive_ns += writing_ns + reading_ns,
            AppCore::Separate => {
                halves.send_ns += writing_ns;
                halves.receive_ns += reading_ns;
            }
            // Either half may do this.
            AppCore::Free => {}
        }
        halves
    }
}

impl Shares {
    /// Divides the time of a metered run. `absorb_ns` is the serial part of opening, per received
    /// packet.
    pub(crate) fn new(side: Side, settings: &Settings, outcome: &Outcome, absorb_ns: f64) -> Self {
        let (kind, app_core) = (settings.kind, settings.app_core);
        let spent = |activity| {
            let spent = outcome.costs.iter().map(|costs| costs.spent(activity).as_nanos() as f64);
            sum(spent) / outcome.packets
        };
        let application_ns = outcome.application.as_nanos() as f64 / outcome.packets;
        let busy_ns = sum(outcome.busy.iter().map(|busy| busy.as_nanos() as f64));
        let others_busy_ns = busy_ns / outcome.busy.len().max(1) as f64 / outcome.packets;
        // Costs are per packet of either direction.
        let received_share = outcome.directions.map_or(1.0, |directions| directions.received_packets / outcome.packets);
        let absorb_ns = absorb_ns * received_share;
        let mut shares = Self { application_ns, others_busy_ns, ..Self::default() };
        for activity in Activity::ALL.into_iter().filter(|activity| activity.kind() != ActivityKind::Idle) {
            let ns = spent(activity);
            shares.stages_ns.insert(activity.id(), ns);
            let parallel = match (side, kind, activity) {
                // The receive half moves to another processor as a whole.
                (_, Kind::Split | Kind::Pipeline, _) => 0.0,
                (Side::Send | Side::Duplex, _, Activity::Seal) => ns,
                (Side::Receive | Side::Duplex, _, Activity::OpenAbsorb) => (ns - absorb_ns).max(0.0),
                // Jobs of a cipher; acknowledgements are a thousandth of that.
                (Side::Send, _, Activity::OpenAbsorb) if settings.has_jobs() => ns,
                // Work on a path is done by the processor that owns the path.
                (_, Kind::Path, Activity::Seal | Activity::SendCall | Activity::RecvCall) => ns,
                // Acknowledgements are too short to use another processor.
                _ => 0.0,
            };
            shares.parallel_ns += parallel;
            shares.serial_ns += ns - parallel;
        }
        shares.halves = kind.has_halves().then(|| Halves::new(app_core, outcome, &shares.stages_ns));
        shares.receiver_ns =
            outcome.directions.map_or(0.0, |directions| directions.receiver.as_nanos() as f64 / outcome.packets);
        let taken_ns = spent(Activity::TakenAway);
        // Not the metered waiting time, which may have begun before the measured time.
        let booked_ns = shares.stages_ns.values().sum::<f64>() + taken_ns;
        shares.waiting_ns = (outcome.time.as_nanos() as f64 / outcome.packets - booked_ns).max(0.0);
        let time_ns = outcome.time.as_nanos() as f64;
        let driver = booked_ns * outcome.packets;
        let receiver = outcome.directions.map(|directions| directions.receiver).filter(|busy| !busy.is_zero());
        let others = outcome.busy.iter().copied().chain(receiver).map(|busy| busy.as_nanos() as f64);
        let busy = std::iter::once(driver).chain(others);
        shares.busy_shares = busy.map(|busy_ns| if time_ns > 0.0 { busy_ns / time_ns } else { 0.0 }).collect();
        let all_ns = taken_ns + shares.total_ns();
        shares.taken_away_share = if all_ns > 0.0 { taken_ns / all_ns } else { 0.0 };
        shares
    }

    /// The median of each figure.
    pub(crate) fn median(all: &[Self]) -> Self {
        let of = |pick: &dyn Fn(&Self) -> f64| median(all.iter().map(pick).collect());
        let ids = all.first().map(|shares| shares.stages_ns.keys().copied()).into_iter().flatten();
        Self {
            serial_ns: of(&|shares| shares.serial_ns),
            parallel_ns: of(&|shares| shares.parallel_ns),
            application_ns: of(&|shares| shares.application_ns),
            waiting_ns: of(&|shares| shares.waiting_ns),
            others_busy_ns: of(&|shares| shares.others_busy_ns),
            busy_shares: (0..all.iter().map(|shares| shares.busy_shares.len()).min().unwrap_or(0))
                .map(|at| of(&|shares| shares.busy_shares[at]))
                .collect(),
            receiver_ns: of(&|shares| shares.receiver_ns),
            halves: all.iter().all(|shares| shares.halves.is_some()).then(|| {
                let half = |pick: &dyn Fn(Halves) -> f64| of(&|shares| shares.halves.map_or(0.0, pick));
                Halves {
                    send_ns: half(&|halves| halves.send_ns),
                    receive_ns: half(&|halves| halves.receive_ns),
                    ip_send_ns: half(&|halves| halves.ip_send_ns),
                }
            }),
            stages_ns: ids.map(|id| (id, of(&|shares| shares.stages_ns.get(id).copied().unwrap_or(0.0)))).collect(),
            taken_away_share: all.iter().map(|shares| shares.taken_away_share).fold(0.0, f64::max),
        }
    }

    /// The total cost.
    pub(crate) fn total_ns(&self) -> f64 {
        self.serial_ns + self.parallel_ns + self.application_ns
    }

    /// The maximum speedup with this number of processors: the driver and the application each use
    /// at most one processor, and all processors together do all the work. If the halves of the
    /// connection are shared, the longer half limits it. None if nothing was measured.
    pub(crate) fn speedup(&self, processors: usize) -> Option<f64> {
        let total_ns = self.total_ns();
        let indivisible_ns = match self.halves {
            // A pipeline. The meter does not tell verifying from absorbing, so that the receive half is
            // divided evenly at best.
            Some(Halves { send_ns, receive_ns, ip_send_ns }) if processors > 2 => {
                (send_ns - ip_send_ns).max(ip_send_ns).max(receive_ns / 2.0)
            }
            Some(Halves { send_ns, receive_ns, .. }) if processors > 1 => send_ns.max(receive_ns),
            Some(_) => total_ns,
            None => self.serial_ns.max(self.application_ns),
        };
        let slowest_ns = indivisible_ns.max(total_ns / processors.max(1) as f64);
        (slowest_ns > 0.0).then(|| total_ns / slowest_ns)
    }
}

/// The sum, which is zero without values: that of the standard library would be printed as `-0`.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    0.0 + values.sum::<f64>()
}

/// The median: for an even number of values, the mean of the middle two; zero without values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::super::run::Directions;
    use super::*;

    fn shares(serial_ns: f64, parallel_ns: f64, application_ns: f64) -> Shares {
        Shares { serial_ns, parallel_ns, application_ns, ..Shares::default() }
    }

    #[test]
    fn the_processors_limit_the_speedup_until_the_serial_part_does() {
        let shares = shares(50.0, 240.0, 10.0);
        assert_eq!(shares.speedup(1), Some(1.0));
        assert_eq!(shares.speedup(2), Some(2.0));
        assert_eq!(shares.speedup(6), Some(6.0));
        assert_eq!(shares.speedup(12), Some(6.0));
    }

    #[test]
    fn the_stacks_of_document_000_have_the_printed_speedups() {
        // Document 000: 237 us serial of 1820 us with MD5 and of 7124 us with DES, on twelve
        // processors.
        let md5 = shares(237.4, 1820.4 - 237.4, 0.0).speedup(12).unwrap();
        let des = shares(237.4, 7123.5 - 237.4, 0.0).speedup(12).unwrap();
        assert!((md5 - 7.67).abs() < 0.01 && (des - 12.0).abs() < 1e-9, "{md5} {des}");
    }

    #[test]
    fn the_application_limits_the_speedup_if_it_takes_longest() {
        assert_eq!(shares(10.0, 10.0, 20.0).speedup(64), Some(2.0));
        assert_eq!(Shares::default().speedup(2), None);
    }

    #[test]
    fn the_longer_half_limits_document_002_to_the_printed_gain() {
        // Table 1: 267 us of protocol for a message that is received, 187 us for one that is sent.
        let halves = Halves { send_ns: 187.0, receive_ns: 267.0, ip_send_ns: 60.0 };
        let split = Shares { halves: Some(halves), ..shares(187.0 + 267.0, 0.0, 0.0) };
        let gain = split.speedup(2).unwrap();
        assert_eq!(split.speedup(1), Some(1.0));
        assert!((gain - Kind::Split.gain_printed().unwrap()).abs() < 0.005, "{gain}");
        // On four processors, half of the receive half or TCP's part of the send half.
        let of_four = |send_ns| Shares { halves: Some(Halves { send_ns, ..halves }), ..split.clone() }.speedup(4);
        assert_eq!(of_four(187.0), Some(454.0 / 133.5));
        assert_eq!(of_four(287.0), Some(2.0));
        // Work of either half is added to the shorter half.
        let split = Shares { application_ns: 80.0, ..split };
        assert_eq!(split.speedup(2), Some(2.0));
    }

    #[test]
    fn threads_of_the_application_count_to_the_half_on_their_processor() {
        let second = Duration::from_secs(1);
        let directions = Directions { writing: second, reading: second * 2, ..Directions::default() };
        let outcome = Outcome {
            packets: 1e9,
            bytes: 1.0,
            time: second,
            process: Duration::ZERO,
            application: second * 3,
            costs: Vec::new(),
            stage: None,
            busy: Vec::new(),
            packets_lost: 0,
            directions: Some(directions),
        };
        let stages_ns = BTreeMap::from([("seal", 10.0), ("plan", 20.0), ("open_absorb", 100.0), ("waiting", 1e6)]);
        let halves = |app_core| {
            let halves = Halves::new(app_core, &outcome, &stages_ns);
            (halves.send_ns, halves.receive_ns)
        };
        assert_eq!(halves(AppCore::First), (33.0, 100.0));
        assert_eq!(halves(AppCore::Last), (30.0, 103.0));
        assert_eq!(halves(AppCore::Separate), (31.0, 102.0));
        assert_eq!(halves(AppCore::Free), (30.0, 100.0));
    }

    #[test]
    fn a_sum_of_nothing_is_printed_without_a_sign() {
        assert_eq!(format!("{:.0} {:.0}", sum(std::iter::empty()), sum([1.0, 2.0].into_iter())), "0 3");
    }

    #[test]
    fn medians_are_taken_figure_by_figure() {
        let all = [shares(1.0, 30.0, 5.0), shares(2.0, 10.0, 5.0), shares(9.0, 20.0, 6.0)];
        let middle = Shares::median(&all);
        assert_eq!((middle.serial_ns, middle.parallel_ns, middle.application_ns), (2.0, 20.0, 5.0));
        assert!(median(vec![]).abs() < 1e-12 && (median(vec![4.0, 2.0]) - 3.0).abs() < 1e-12);
    }
}
