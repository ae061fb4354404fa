//! 002-shared-state: the connection's state in two copies, and a timer that must not trust its own.
//!
//! Either side writes its copy and pokes the other's. For a moment they differ. If the retransmission timer runs out in that moment,
//! the transmit side sends again what the receive side knows to have arrived, unless it looks there first (a peek).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use measure::Estimate;
use sim::hardware::{Channel, Priority, Process, Transputer};
use sim::{Sim, Simulation, Store, Stream};
use units::Duration;

use super::paper::Table1;
use super::setup::{Costs, Setup, micros};
use crate::conserved::{assert_conserved, check_books};
use crate::outcome::{Cell as TableCell, Check, Column, Outcome, Row, Table};
use crate::replicate::replicate;
use crate::study::{Effort, Options, Study};
use crate::{Choice, choices};

/// The study.
pub(super) struct SharedState;

/// What `xtask` waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Acknowledged,
    TimedOut { segment: u64, attempt: u32 },
}

/// Timers that have run out and acknowledgements for `xtask`. Far more than there can be: a segment at a time is under way, and each
/// of its timers runs out once.
const INBOX: usize = 256;

/// Acknowledgements that wait for the receive side.
const INPUT: usize = 256;

const WORD_BYTES: u64 = 4;

/// How the race between timer and acknowledgement is run.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Race {
    costs: Costs,
    pokes: u32,
    reads_again: bool,
    /// Of the processes that do pokes and peeks for the other side.
    priority: Priority,
    /// The network and the peer, there and back.
    round_trip: (Duration, Duration),
    timeout: Duration,
    /// Of segments and of acknowledgements, each.
    loss: f64,
    segments: u64,
}

/// How the timer's decisions turned out.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    retransmissions: u64,
    /// The receive side had the acknowledgement when it was decided.
    known: u64,
    /// The acknowledgement was on its way.
    coming: u64,
    /// Nothing would have come.
    necessary: u64,
    /// Not sent again, because a peek showed the acknowledgement.
    spared: u64,
    /// Segments that arrived once more, and were thrown away.
    duplicates: u64,
    delivered: u64,
    out_of_order: u64,
    /// Lost on their way to the peer, and on it at the end.
    lost: u64,
    flying: u64,
}

impl Counts {
    /// What was sent has come or not, and each retransmission has its reason.
    ///
    /// # Panics
    /// If that does not add up.
    fn check_conservation(&self, segments: u64) {
        let came =
            [("delivered", self.delivered), ("duplicates", self.duplicates), ("out of order", self.out_of_order)];
        let places: Vec<_> = came.into_iter().chain([("lost", self.lost), ("on their way", self.flying)]).collect();
        assert_conserved("segments", segments + self.retransmissions, &places);
        let reasons = [("known", self.known), ("coming", self.coming), ("necessary", self.necessary)];
        assert_conserved("retransmissions", self.retransmissions, &reasons);
    }
}

/// Everything the processes share.
struct World {
    sim: Sim,
    race: Race,
    receive: Process,
    transmit: Process,
    /// For pokes on the transmit side, for peeks on the receive side.
    servants: [Process; 2],
    acknowledgements: Store<u64>,
    inbox: Store<Event>,
    pokes: Channel<Option<u64>>,
    peeks: Channel<()>,
    answers: Channel<u64>,
    /// Segments acknowledged, as each side knows it.
    receive_copy: Cell<u64>,
    transmit_copy: Cell<u64>,
    expected_by_peer: Cell<u64>,
    counts: RefCell<Counts>,
}

impl World {
    fn new(sim: &Sim, race: &Race) -> Rc<Self> {
        let receive_side = Transputer::new(sim, "receive side", Duration::ZERO);
        let transmit_side = Transputer::new(sim, "transmit side", Duration::ZERO);
        let byte = micros(race.costs.link_word_us / WORD_BYTES as f64);
        Rc::new(Self {
            sim: sim.clone(),
            race: *race,
            receive: receive_side.process(Priority::Low),
            transmit: transmit_side.process(Priority::Low),
            servants: [transmit_side.process(race.priority), receive_side.process(race.priority)],
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

    /// The transmit half: a segment at a time, and its timer.
    async fn xtask(self: Rc<Self>, mut network: Stream) {
        for segment in 0..self.race.segments {
            let mut attempt = 0;
            let mut will_be_answered = self.send(segment, attempt, &mut network).await;
            while self.transmit_copy.get() <= segment {
                let Event::TimedOut { segment: late, attempt: number } = self.inbox.take().await else { continue };
                if (late, number) != (segment, attempt) || self.transmit_copy.get() > segment {
                    continue;
                }
                if self.race.reads_again {
                    let fresh = self.peek().await;
                    self.transmit_copy.set(self.transmit_copy.get().max(fresh));
                    if fresh > segment {
                        self.counts.borrow_mut().spared += 1;
                        break;
                    }
                }
                self.judge(segment, will_be_answered);
                attempt += 1;
                will_be_answered |= self.send(segment, attempt, &mut network).await;
            }
        }
        self.sim.stop();
    }

    /// Writes down what there was to know when it was decided to send again.
    fn judge(&self, segment: u64, will_be_answered: bool) {
        let mut counts = self.counts.borrow_mut();
        counts.retransmissions += 1;
        if self.receive_copy.get() > segment {
            counts.known += 1;
        } else if will_be_answered {
            counts.coming += 1;
        } else {
            counts.necessary += 1;
        }
    }

    /// Sends a segment and starts its timer. True if it will be acknowledged, which nobody but the network knows yet.
    async fn send(self: &Rc<Self>, segment: u64, attempt: u32, network: &mut Stream) -> bool {
        self.transmit.run(micros(self.race.costs.transmit_us())).await;
        let (data_lost, answer_lost) = (network.chance(self.race.loss), network.chance(self.race.loss));
        let (least, most) = self.race.round_trip;
        let round_trip = network.between(least, most);
        let world = Rc::clone(self);
        if data_lost {
            self.counts.borrow_mut().lost += 1;
        } else {
            self.counts.borrow_mut().flying += 1;
            self.sim.spawn(async move {
                world.sim.sleep(round_trip.mul_ratio(1, 2)).await;
                world.arrive(segment);
                world.sim.sleep(round_trip.mul_ratio(1, 2)).await;
                if !answer_lost {
                    world.acknowledgements.put(world.expected_by_peer.get()).await;
                }
            });
        }
        let world = Rc::clone(self);
        self.sim.spawn(async move {
            world.sim.sleep(world.race.timeout).await;
            world.inbox.put(Event::TimedOut { segment, attempt }).await;
        });
        !data_lost && !answer_lost
    }

    /// At the peer.
    fn arrive(&self, segment: u64) {
        let mut counts = self.counts.borrow_mut();
        counts.flying -= 1;
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

    /// The receive half: takes acknowledgements, writes its copy, pokes the other.
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

    /// Writes into the transmit side's copy what the receive side sends.
    async fn poked(self: Rc<Self>) {
        loop {
            let Some(acknowledged) = self.pokes.receive().await else { continue };
            self.servants[0].run(micros(self.race.costs.poke_us)).await;
            self.transmit_copy.set(self.transmit_copy.get().max(acknowledged));
            self.inbox.put(Event::Acknowledged).await;
        }
    }

    /// Asks the receive side what is acknowledged.
    async fn peek(&self) -> u64 {
        self.transmit.run(micros(self.race.costs.poke_us)).await;
        self.peeks.send((), WORD_BYTES).await;
        self.answers.receive().await
    }

    async fn peeked(self: Rc<Self>) {
        loop {
            self.peeks.receive().await;
            self.servants[1].run(micros(self.race.costs.poke_us)).await;
            self.answers.send(self.receive_copy.get(), WORD_BYTES).await;
        }
    }
}

fn run(race: &Race, seed: u64, number: u64) -> Counts {
    let mut simulation = Simulation::new(seed, number);
    let sim = simulation.sim();
    let world = World::new(&sim, race);
    simulation.spawn(Rc::clone(&world).xtask(sim.stream("network")));
    simulation.spawn(Rc::clone(&world).tcp_recv());
    simulation.spawn(Rc::clone(&world).poked());
    simulation.spawn(Rc::clone(&world).peeked());
    simulation.run();
    check_books(&simulation);
    let counts = *world.counts.borrow();
    counts.check_conservation(race.segments);
    counts
}

/// Independent runs, all counts for a thousand segments.
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
            |counts| counts.coming,
            |counts| counts.necessary,
            |counts| counts.spared,
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
        reads_again: false,
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
        "One connection's state in two copies: superfluous retransmissions with and without looking again"
    }

    fn data(&self) -> &'static [&'static str] {
        &["002-table-1.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let figure = "known and sent again all the same, per 1,000 segments";
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
                "not given; within the round trips, so that timers and acknowledgements meet",
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
                "not given; long beside the 21 us of a poke",
            )
            .or("4 to 6 ms", figure, with(|race| race.round_trip.0 = Duration::from_millis(4)))
            .or(
                "1 to 9 ms",
                figure,
                with(|race| race.round_trip = (Duration::from_millis(1), Duration::from_millis(9))),
            ),
            Choice::new(
                "pokes",
                format!("{pokes} for an acknowledgement"),
                "what is acknowledged, and the window; see 002-scenarios",
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
        let with = Race { reads_again: true, ..without };
        let slow = Race { priority: Priority::Low, ..without };
        let slow_with = Race { reads_again: true, ..slow };
        let [plain, again, slow, slow_again] =
            [without, with, slow, slow_with].map(|race| Replicated::of(&race, options));
        let per = "per 1,000 segments";
        let columns = [
            Column::new("retransmissions", per),
            Column::new("of these, acknowledgement known at the receive side", per),
            Column::new("acknowledgement on its way", per),
            Column::new("necessary", per),
            Column::new("spared by looking again", per),
            Column::new("duplicates at the peer", per),
        ];
        let rows = vec![
            plain.row("own copy trusted"),
            again.row("looks again"),
            slow.row("own copy trusted, pokes served at low priority"),
            slow_again.row("looks again, peeks served at low priority"),
        ];
        let title = "What became of timers that ran out".to_owned();
        Outcome {
            tables: vec![Table { title, columns: columns.to_vec(), rows }],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: checks(&plain, &again, without.segments),
            notes: vec![
                "The paper prints no counts. The timer is set into the middle of the round trips, far closer than \
                 TCP would, so that the race happens often enough to be counted."
                    .to_owned(),
            ],
            ..Outcome::default()
        }
    }
}

fn checks(plain: &Replicated, again: &Replicated, segments: u64) -> Vec<Check> {
    let known = |replicated: &Replicated| replicated.sum(|counts| counts.known);
    let right = [plain, again].iter().all(|replicated| {
        replicated.runs.iter().all(|counts| counts.delivered == segments && counts.out_of_order == 0)
    });
    let duplicates = plain.sum(|counts| counts.duplicates);
    vec![
        Check::new(
            "without looking again the data are right all the same: superfluous segments are the only harm",
            right && duplicates > 0,
            format!("all {segments} segments of every run once and in order; {duplicates} duplicates thrown away"),
        ),
        Check::new(
            "looking again spares nine in ten of the retransmissions that the receive side knows to be \
             superfluous",
            known(again) * 10 <= known(plain) && known(plain) > 0,
            format!(
                "{} without, {} with, and those because an acknowledgement came while the answer was on its way",
                known(plain),
                known(again)
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 5;

    #[test]
    fn a_timer_that_looks_again_sends_less_and_never_loses_data() {
        let table = Table1::load();
        let race = base(&table, Effort::Quick);
        let plain = run(&race, SEED, 0);
        let again = run(&Race { reads_again: true, ..race }, SEED, 0);
        assert!(plain.known > 20 && again.known * 10 < plain.known, "{plain:?} {again:?}");
        assert!(again.spared > 20, "{again:?}");
        for counts in [plain, again] {
            assert_eq!((counts.delivered, counts.out_of_order), (race.segments, 0));
            assert_eq!(counts.known + counts.coming + counts.necessary, counts.retransmissions);
            assert!(counts.necessary > 0);
        }
    }

    #[test]
    fn no_timer_too_early_means_nothing_superfluous() {
        let race = Race { timeout: Duration::from_millis(20), ..base(&Table1::load(), Effort::Quick) };
        let counts = run(&race, SEED, 0);
        assert_eq!((counts.known, counts.coming), (0, 0));
        assert_eq!(counts.retransmissions, counts.necessary);
    }

    #[test]
    #[should_panic(expected = "segments are not conserved")]
    fn a_duplicate_that_nobody_sent_ends_the_run() {
        let race = base(&Table1::load(), Effort::Quick);
        let counts = run(&race, SEED, 0);
        Counts { duplicates: counts.duplicates + 1, ..counts }.check_conservation(race.segments);
    }
}
