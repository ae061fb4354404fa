//! 002-shared-state: the connection state in two copies, and a timer that must not trust its own.
//!
//! Each side writes its copy and pokes the other's, so the copies differ for a short time. If the
//! retransmission timer expires in that time, the transmit side retransmits a segment that the
//! receive side knows to have arrived, unless it reads the other copy first (a peek).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use measure::Estimate;
use sim::hardware::{Channel, Priority, Process, Transputer};
use sim::{Sim, Simulation, Store, Stream};
use units::Duration;

use super::paper::Table1;
use super::setup::{Costs, Setup, micros};
use crate::choices;
use crate::choices::Choice;
use crate::conserved::{assert_conserved, check_accounting};
use crate::outcome::{Cell as TableCell, Check, Column, Outcome, Row, Table};
use crate::replicate::replicate;
use crate::study::{Effort, Options, Study};

/// The study.
pub(super) struct SharedState;

/// Events that `xtask` waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Acknowledged,
    TimedOut { segment: u64, attempt: u32 },
}

/// Capacity for expired timers and acknowledgements of `xtask`. It is never reached: one segment is
/// in flight at a time, and each of its timers expires once.
const INBOX: usize = 256;

/// Acknowledgements that wait for the receive side.
const INPUT: usize = 256;

const WORD_BYTES: u64 = 4;

/// Parameters of the race between timer and acknowledgement.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Race {
    costs: Costs,
    pokes: u32,
    re_reads: bool,
    /// Priority of the processes that serve pokes and peeks.
    priority: Priority,
    /// Range of the round-trip time of network and peer.
    round_trip: (Duration, Duration),
    timeout: Duration,
    /// Loss probability of segments and of acknowledgements.
    loss: f64,
    segments: u64,
}

/// Outcomes of the timer's decisions.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    retransmissions: u64,
    /// Retransmissions whose acknowledgement was known at the receive side.
    known: u64,
    /// Retransmissions whose acknowledgement was in transit.
    in_transit: u64,
    /// Retransmissions without a coming acknowledgement.
    necessary: u64,
    /// Retransmissions avoided because a peek showed the acknowledgement.
    avoided: u64,
    /// Segments that arrived a second time and were discarded.
    duplicates: u64,
    delivered: u64,
    out_of_order: u64,
    /// Segments lost on the way to the peer, and in flight at the end.
    lost: u64,
    in_flight: u64,
}

impl Counts {
    /// Checks that all segments are accounted for and each retransmission has a reason.
    ///
    /// # Panics
    /// Panics if this does not hold.
    fn check_conservation(&self, segments: u64) {
        let came =
            [("delivered", self.delivered), ("duplicates", self.duplicates), ("out of order", self.out_of_order)];
        let places: Vec<_> = came.into_iter().chain([("lost", self.lost), ("in flight", self.in_flight)]).collect();
        assert_conserved("segments", segments + self.retransmissions, &places);
        let reasons = [("known", self.known), ("in_transit", self.in_transit), ("necessary", self.necessary)];
        assert_conserved("retransmissions", self.retransmissions, &reasons);
    }
}

/// State shared by the processes.
struct Model {
    sim: Sim,
    race: Race,
    receive: Process,
    transmit: Process,
    /// Pokes on the transmit side, peeks on the receive side.
    state_processes: [Process; 2],
    acknowledgements: Store<u64>,
    inbox: Store<Event>,
    pokes: Channel<Option<u64>>,
    peeks: Channel<()>,
    answers: Channel<u64>,
    /// Segments acknowledged, as known at each side.
    receive_copy: Cell<u64>,
    transmit_copy: Cell<u64>,
    expected_by_peer: Cell<u64>,
    counts: RefCell<Counts>,
}

impl Model {
    fn new(sim: &Sim, race: &Race) -> Rc<Self> {
        let receive_side = Transputer::new(sim, "receive side", Duration::ZERO);
        let transmit_side = Transputer::new(sim, "transmit side", Duration::ZERO);
        let byte = micros(race.costs.link_word_us / WORD_BYTES as f64);
        Rc::new(Self {
            sim: sim.clone(),
            race: *race,
            receive: receive_side.process(Priority::Low),
            transmit: transmit_side.process(Priority::Low),
            state_processes: [transmit_side.process(race.priority), receive_side.process(race.priority)],
            acknowledgements: Store::new(sim, "acknowledgements", INPUT),
            inbox: Store::new(sim, "inbox", INBOX),
            pokes: Channel::new(sim, "pokes", byte),
            peeks: Channel::new(sim, "peeks", byte),
            answers: Channel::new(sim, "answers", byte),
            receive_copy: Cell::new(0),
            transmit_copy: Cell::new(0),
            expected_by_peer: Cell::new(0),
            counts: RefCell::default(),
        })
    }

    /// Runs the transmit half: one segment at a time, with its timer.
    async fn xtask(self: Rc<Self>, mut network: Stream) {
        for segment in 0..self.race.segments {
            let mut attempt = 0;
            let mut will_be_answered = self.send(segment, attempt, &mut network).await;
            while self.transmit_copy.get() <= segment {
                let Event::TimedOut { segment: late, attempt: number } = self.inbox.take().await else { continue };
                if (late, number) != (segment, attempt) || self.transmit_copy.get() > segment {
                    continue;
                }
                if self.race.re_reads {
                    let fresh = self.peek().await;
                    self.transmit_copy.set(self.transmit_copy.get().max(fresh));
                    if fresh > segment {
                        self.counts.borrow_mut().avoided += 1;
                        break;
                    }
                }
                self.classify(segment, will_be_answered);
                attempt += 1;
                will_be_answered |= self.send(segment, attempt, &mut network).await;
            }
        }
        self.sim.stop();
    }

    /// Classifies a retransmission by the knowledge at the time of the decision.
    fn classify(&self, segment: u64, will_be_answered: bool) {
        let mut counts = self.counts.borrow_mut();
        counts.retransmissions += 1;
        if self.receive_copy.get() > segment {
            counts.known += 1;
        } else if will_be_answered {
            counts.in_transit += 1;
        } else {
            counts.necessary += 1;
        }
    }

    /// Sends a segment and starts its timer. Returns whether it will be acknowledged, which only
    /// the network model knows at this time.
    async fn send(self: &Rc<Self>, segment: u64, attempt: u32, network: &mut Stream) -> bool {
        self.transmit.run(micros(self.race.costs.transmit_us())).await;
        let (data_lost, answer_lost) = (network.chance(self.race.loss), network.chance(self.race.loss));
        let (least, most) = self.race.round_trip;
        let round_trip = network.between(least, most);
        let model = Rc::clone(self);
        if data_lost {
            self.counts.borrow_mut().lost += 1;
        } else {
            self.counts.borrow_mut().in_flight += 1;
            self.sim.spawn(async move {
                model.sim.sleep(round_trip.mul_ratio(1, 2)).await;
                model.arrive(segment);
                model.sim.sleep(round_trip.mul_ratio(1, 2)).await;
                if !answer_lost {
                    model.acknowledgements.put(model.expected_by_peer.get()).await;
                }
            });
        }
        let model = Rc::clone(self);
        self.sim.spawn(async move {
            model.sim.sleep(model.race.timeout).await;
            model.inbox.put(Event::TimedOut { segment, attempt }).await;
        });
        !data_lost && !answer_lost
    }

    /// Handles the arrival of a segment at the peer.
    fn arrive(&self, segment: u64) {
        let mut counts = self.counts.borrow_mut();
        counts.in_flight -= 1;
        let expected = self.expected_by_peer.get();
        if segment == expected {
            self.expected_by_peer.set(expected + 1);
            counts.delivered += 1;
        } else if segment < expected {
            counts.duplicates += 1;
        } else {
            counts.out_of_order += 1;
        }
    }

    /// Runs the receive half: takes acknowledgements, writes its copy and pokes the other.
    async fn tcp_recv(self: Rc<Self>) {
        loop {
            let acknowledged = self.acknowledgements.take().await;
            self.receive.run(micros(self.race.costs.receive_us())).await;
            self.receive_copy.set(self.receive_copy.get().max(acknowledged));
            for index in 1..=self.race.pokes {
                self.receive.run(micros(self.race.costs.poke_us)).await;
                let value = (index == self.race.pokes).then(|| self.receive_copy.get());
                self.pokes.send(value, WORD_BYTES).await;
            }
        }
    }

    /// Writes the values sent by the receive side into the transmit side's copy.
    async fn poked(self: Rc<Self>) {
        loop {
            let Some(acknowledged) = self.pokes.receive().await else { continue };
            self.state_processes[0].run(micros(self.race.costs.poke_us)).await;
            self.transmit_copy.set(self.transmit_copy.get().max(acknowledged));
            self.inbox.put(Event::Acknowledged).await;
        }
    }

    /// Requests the acknowledged segments from the receive side.
    async fn peek(&self) -> u64 {
        self.transmit.run(micros(self.race.costs.poke_us)).await;
        self.peeks.send((), WORD_BYTES).await;
        self.answers.receive().await
    }

    async fn peeked(self: Rc<Self>) {
        loop {
            self.peeks.receive().await;
            self.state_processes[1].run(micros(self.race.costs.poke_us)).await;
            self.answers.send(self.receive_copy.get(), WORD_BYTES).await;
        }
    }
}

fn run(race: &Race, seed: u64, number: u64) -> Counts {
    let mut simulation = Simulation::new(seed, number);
    let sim = simulation.sim();
    let model = Model::new(&sim, race);
    simulation.spawn(Rc::clone(&model).xtask(sim.stream("network")));
    simulation.spawn(Rc::clone(&model).tcp_recv());
    simulation.spawn(Rc::clone(&model).poked());
    simulation.spawn(Rc::clone(&model).peeked());
    simulation.run();
    check_accounting(&simulation);
    let counts = *model.counts.borrow();
    counts.check_conservation(race.segments);
    counts
}

/// Independent runs; counts are reported per thousand segments.
struct Replicated {
    runs: Vec<Counts>,
    segments: f64,
    confidence: f64,
}

impl Replicated {
    fn of(race: &Race, options: &Options) -> Self {
        let one = |seed, number| run(race, seed, number);
        let runs = replicate(options, one, |counts| vec![counts.retransmissions as f64]);
        Self { runs, segments: race.segments as f64, confidence: options.confidence }
    }

    fn per_thousand(&self, count: impl Fn(&Counts) -> u64) -> Estimate {
        let values: Vec<_> = self.runs.iter().map(|counts| count(counts) as f64 * 1000.0 / self.segments).collect();
        Estimate::of(&values, self.confidence)
    }

    fn sum(&self, count: impl Fn(&Counts) -> u64) -> u64 {
        self.runs.iter().map(count).sum()
    }

    fn row(&self, label: &str) -> Row {
        let columns: [fn(&Counts) -> u64; 6] = [
            |counts| counts.retransmissions,
            |counts| counts.known,
            |counts| counts.in_transit,
            |counts| counts.necessary,
            |counts| counts.avoided,
            |counts| counts.duplicates,
        ];
        let cells = columns.iter().map(|column| TableCell::ours(self.per_thousand(column))).collect();
        Row { label: label.to_owned(), cells }
    }
}

fn base(table: &Table1, effort: Effort) -> Race {
    let segments = match effort {
        Effort::Quick => 2_500,
        Effort::Full => 40_000,
    };
    Race {
        costs: Costs::of_scenario_1(table),
        pokes: Setup::scenario_1(table).pokes,
        re_reads: false,
        priority: Priority::High,
        round_trip: (Duration::from_millis(2), Duration::from_millis(6)),
        timeout: Duration::from_millis(5),
        loss: 0.005,
        segments,
    }
}

impl Study for SharedState {
    fn id(&self) -> &'static str {
        "002-shared-state"
    }

    fn title(&self) -> &'static str {
        "Connection state in two copies: unnecessary retransmissions with and without re-reading"
    }

    fn data(&self) -> &'static [&'static str] {
        &["002-table-1.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let figure = "retransmitted although known, per 1,000 segments";
        let with = |change: fn(&mut Race)| {
            move |options: &Options| {
                let mut race = base(&Table1::load(), options.effort);
                change(&mut race);
                Replicated::of(&race, options).per_thousand(|counts| counts.known)
            }
        };
        let pokes = base(&Table1::load(), Effort::Quick).pokes;
        vec![
            Choice::new(
                "timeout",
                "5 ms, fixed",
                "not given; within the range of round trips, so that timers and acknowledgements coincide",
            )
            .or("3 ms", figure, with(|race| race.timeout = Duration::from_millis(3)))
            .or(
                "10 ms, longer than any round trip",
                figure,
                with(|race| race.timeout = Duration::from_millis(10)),
            ),
            Choice::new(
                "round_trip",
                "2 to 6 ms, uniform, network and peer",
                "not given; long compared with the 21 us of a poke",
            )
            .or("4 to 6 ms", figure, with(|race| race.round_trip.0 = Duration::from_millis(4)))
            .or(
                "1 to 9 ms",
                figure,
                with(|race| race.round_trip = (Duration::from_millis(1), Duration::from_millis(9))),
            ),
            Choice::new(
                "pokes",
                format!("{pokes} per acknowledgement"),
                "the acknowledged segment and the window; see 002-scenarios",
            )
            .or("1", figure, with(|race| race.pokes = 1))
            .or("4", figure, with(|race| race.pokes = 4)),
            Choice::new(
                "loss",
                "0.5 % of segments and of acknowledgements",
                "not given; so that some retransmissions are necessary",
            )
            .or("0", figure, with(|race| race.loss = 0.0))
            .or("5 %", figure, with(|race| race.loss = 0.05)),
        ]
    }

    fn run(&self, options: &Options) -> Outcome {
        let table = Table1::load();
        let without = base(&table, options.effort);
        let with = Race { re_reads: true, ..without };
        let slow = Race { priority: Priority::Low, ..without };
        let slow_with = Race { re_reads: true, ..slow };
        let [plain, re_reading, slow, slow_re_reading] =
            [without, with, slow, slow_with].map(|race| Replicated::of(&race, options));
        let per = "per 1,000 segments";
        let columns = [
            Column::new("retransmissions", per),
            Column::new("of these, acknowledgement known at the receive side", per),
            Column::new("acknowledgement in transit", per),
            Column::new("necessary", per),
            Column::new("avoided by re-reading", per),
            Column::new("duplicates at the peer", per),
        ];
        let rows = vec![
            plain.row("own copy trusted"),
            re_reading.row("re-reads"),
            slow.row("own copy trusted, pokes served at low priority"),
            slow_re_reading.row("re-reads, peeks served at low priority"),
        ];
        let title = "Results of expired timers".to_owned();
        Outcome {
            tables: vec![Table { title, columns: columns.to_vec(), rows }],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: checks(&plain, &re_reading, without.segments),
            notes: vec![
                "The paper prints no counts. The timeout is in the middle of the round trips, far shorter than in \
                 TCP, so that the race occurs often enough to be counted."
                    .to_owned(),
            ],
            ..Outcome::default()
        }
    }
}

fn checks(plain: &Replicated, re_reading: &Replicated, segments: u64) -> Vec<Check> {
    let known = |replicated: &Replicated| replicated.sum(|counts| counts.known);
    let right = [plain, re_reading].iter().all(|replicated| {
        replicated.runs.iter().all(|counts| counts.delivered == segments && counts.out_of_order == 0)
    });
    let duplicates = plain.sum(|counts| counts.duplicates);
    vec![
        Check::new(
            "without re-reading the data are still right: unnecessary segments are the only effect",
            right && duplicates > 0,
            format!("all {segments} segments of every run once and in order; {duplicates} duplicates discarded"),
        ),
        Check::new(
            "re-reading avoids nine in ten of the retransmissions that the receive side knows to be \
             unnecessary",
            known(re_reading) * 10 <= known(plain) && known(plain) > 0,
            format!(
                "{} without, {} with; the latter because an acknowledgement arrived while the answer was in transit",
                known(plain),
                known(re_reading)
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 5;

    #[test]
    fn re_reading_avoids_retransmissions_and_never_loses_data() {
        let table = Table1::load();
        let race = base(&table, Effort::Quick);
        let plain = run(&race, SEED, 0);
        let re_reading = run(&Race { re_reads: true, ..race }, SEED, 0);
        assert!(plain.known > 20 && re_reading.known * 10 < plain.known, "{plain:?} {re_reading:?}");
        assert!(re_reading.avoided > 20, "{re_reading:?}");
        for counts in [plain, re_reading] {
            assert_eq!((counts.delivered, counts.out_of_order), (race.segments, 0));
            assert_eq!(counts.known + counts.in_transit + counts.necessary, counts.retransmissions);
            assert!(counts.necessary > 0);
        }
    }

    #[test]
    fn a_long_timeout_causes_no_unnecessary_retransmissions() {
        let race = Race { timeout: Duration::from_millis(20), ..base(&Table1::load(), Effort::Quick) };
        let counts = run(&race, SEED, 0);
        assert_eq!((counts.known, counts.in_transit), (0, 0));
        assert_eq!(counts.retransmissions, counts.necessary);
    }

    #[test]
    #[should_panic(expected = "segments are not conserved")]
    fn a_spurious_duplicate_fails_the_run() {
        let race = base(&Table1::load(), Effort::Quick);
        let counts = run(&race, SEED, 0);
        Counts { duplicates: counts.duplicates + 1, ..counts }.check_conservation(race.segments);
    }
}
