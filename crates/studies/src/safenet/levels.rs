//! 003-levels: latency lines and asymptotes of MAC, transport and user level.

use ::measure::Estimate;

use super::assumptions::{self, MainFigure};
use super::costs::{Costs, Split};
use super::measure::{Fit, latency_us, repetitions, throughput_mbps, throughputs_after_warm_ups};
use super::paper::{Line, Paper};
use super::pipeline::{Level, QueueLimits, Setup};
use super::rate::RateLimit;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Plot, Row, Series, Table};
use crate::study::{Options, Study};
use crate::{choices, warm_up};

/// The study.
pub(super) struct Levels;

/// Tolerance of a, b and the asymptotes.
pub(super) const TOLERANCE: f64 = 0.05;

/// Points per curve; the last one is the longest frame.
const POINTS: u64 = 8;

/// Returns a deterministic number.
pub(super) const fn exact(mean: f64) -> Estimate {
    Estimate { mean, plus_minus: None }
}

/// Returns a setup of two hosts, measured at `level`.
pub(super) fn setup(paper: &Paper, split: &Split, level: Level) -> Setup {
    let limit = RateLimit {
        burst_bytes: paper.burst_bytes,
        rate_bytes_per_second: paper.rate_bytes_per_second,
        cuts_frames: true,
    };
    Setup {
        level,
        costs: Costs::solve(paper, split),
        frame_bytes: split.frame_bytes,
        limit: (level == Level::User).then_some(limit),
        receivers: 1,
        is_group: false,
        queue_limits: QueueLimits::default(),
        ring_m: split.ring_m,
    }
}

/// Latency and throughput by message size at one level.
pub(super) struct Measured {
    pub(super) latency_us: Vec<(f64, f64)>,
    pub(super) throughput_mbps: Vec<(f64, f64)>,
    pub(super) fit: Fit,
}

impl Measured {
    /// Measures up to the longest frame of `setup`; `printed` is the paper's number of repetitions.
    pub(super) fn of(setup: &Setup, printed: usize, options: &Options) -> Self {
        let count = repetitions(printed, options);
        let sizes = (1..=POINTS).map(|point| setup.frame_bytes * point / POINTS);
        let latency: Vec<_> =
            sizes.clone().map(|bytes| (bytes as f64, latency_us(setup, bytes, count, options))).collect();
        let throughput = sizes.map(|bytes| (bytes as f64, throughput_mbps(setup, bytes, count, options)));
        Self { fit: Fit::through(&latency), latency_us: latency, throughput_mbps: throughput.collect() }
    }

    /// Returns the throughput at the longest frame.
    pub(super) fn asymptote(&self) -> f64 {
        self.throughput_mbps.last().map_or(0.0, |point| point.1)
    }

    /// Returns our a, b and asymptote with the paper's; `fitted` marks those that were used to
    /// solve costs.
    pub(super) fn row(&self, label: &str, line: &Line, fitted: [bool; 3]) -> Row {
        let printed = [line.a_us_per_byte, line.b_us / 1000.0, line.asymptote_mbps];
        let ours = [self.fit.a, self.fit.b / 1000.0, self.asymptote()];
        let cell = |index: usize| {
            let cell = Cell::compared(printed[index], exact(ours[index]), TOLERANCE);
            if fitted[index] { cell.fitted() } else { cell }
        };
        Row { label: label.to_owned(), cells: (0..3).map(cell).collect() }
    }
}

/// Returns the columns of [`Measured::row`].
pub(super) fn columns() -> Vec<Column> {
    vec![Column::new("a", "us/byte"), Column::new("b", "ms"), Column::new("asymptote", "Mb/s")]
}

impl Study for Levels {
    fn id(&self) -> &'static str {
        "003-levels"
    }

    fn title(&self) -> &'static str {
        "Latency y = a x + b and throughput at MAC, transport and user level"
    }

    fn data(&self) -> &'static [&'static str] {
        &["003-levels.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let long = |bytes: u64| {
            move |options: &Options| {
                let paper = Paper::load();
                let setup = setup(&paper, &Split::even(&paper), Level::User);
                assumptions::asymptote(&setup, bytes, options)
            }
        };
        let main_figure = MainFigure {
            name: "asymptote at user level, Mb/s",
            split: Split::even,
            setup: |_, setup| setup,
            figure: assumptions::asymptote,
            message_bytes: |split| split.frame_bytes,
        };
        let mac = |frame_bytes: u64| {
            move |options: &Options| {
                let paper = Paper::load();
                let split = Split { frame_bytes, ..Split::even(&paper) };
                exact(Measured::of(&setup(&paper, &split, Level::Mac), paper.messages, options).fit.a)
            }
        };
        let longest = Choice::new(
            "longest message",
            "one frame",
            "not given; with several frames in flight latency would not be linear",
        )
        .or("16,384 bytes", main_figure.name, long(16_384))
        .or("65,536 bytes", main_figure.name, long(65_536))
        .or("frames of 4096 bytes", "a of MAC, us/byte", mac(4096))
        .or("frames of 2048 bytes", "a of MAC, us/byte", mac(2048));
        let mut all = vec![longest];
        all.extend(assumptions::choices(main_figure));
        all
    }

    fn run(&self, options: &Options) -> Outcome {
        let paper = Paper::load();
        let split = Split::even(&paper);
        let levels = [
            ("MAC (FDDI)", Level::Mac, paper.mac, paper.frames, [false, true, true]),
            ("transport (XTP)", Level::Transport, paper.transport, paper.messages, [true, true, true]),
            ("user (Ada)", Level::User, paper.user, paper.messages, [true, true, false]),
        ];
        let measured =
            levels.map(|(_, level, _, printed, _)| Measured::of(&setup(&paper, &split, level), printed, options));
        let rows = levels
            .iter()
            .zip(&measured)
            .map(|((name, _, line, _, fitted), measured)| measured.row(name, line, *fitted));
        let mut checks = checks(&paper, &measured);
        let twice = levels.map(|(name, level, _, printed, _)| {
            let setup = setup(&paper, &split, level);
            let count = repetitions(printed, options);
            (name, throughputs_after_warm_ups(&setup, setup.frame_bytes, count, options))
        });
        checks.push(warm_up::check_twice("asymptotes", &twice));
        let title = "Latency lines and asymptotes".to_owned();
        let names = levels.map(|(name, ..)| name);
        Outcome {
            tables: vec![Table { title, columns: columns(), rows: rows.collect() }],
            plots: plots(&names, &measured),
            assumptions: choices::assumptions(&self.choices(), options),
            checks,
            notes: vec![
                "Marked values are those from which costs were solved; they agree by construction. a at MAC level \
                 and the asymptote at user level were not used."
                    .to_owned(),
                "An asymptote is taken as the throughput of the longest message, which is one frame: with messages \
                 of several frames latency would not be linear, because several frames would be in flight."
                    .to_owned(),
                "The model is deterministic, so there are no intervals.".to_owned(),
            ],
        }
    }
}

fn plots(names: &[&str; 3], measured: &[Measured; 3]) -> Vec<Plot> {
    let plot = |title: &str, y: Column, scale: f64, points: &dyn Fn(&Measured) -> Vec<(f64, f64)>| {
        let series = names.iter().zip(measured).map(|(name, measured)| Series {
            name: (*name).to_owned(),
            points: points(measured).into_iter().map(|(x, y)| (x, exact(y * scale))).collect(),
        });
        Plot { title: title.to_owned(), x: Column::new("user data", "bytes"), y, series: series.collect() }
    };
    vec![
        plot("Latency by size", Column::new("latency", "ms"), 1e-3, &|measured| measured.latency_us.clone()),
        plot("Throughput by size", Column::new("throughput", "Mb/s"), 1.0, &|measured| {
            measured.throughput_mbps.clone()
        }),
    ]
}

fn checks(paper: &Paper, measured: &[Measured; 3]) -> Vec<Check> {
    let [mac, transport, user] = measured;
    let asymptotes = measured.each_ref().map(Measured::asymptote);
    let worst = measured.iter().map(|measured| measured.fit.worst_share).fold(0.0, f64::max);
    let rises = |measured: &Measured| measured.throughput_mbps.windows(2).all(|pair| pair[1].1 > pair[0].1);
    let slows = measured.iter().zip(asymptotes).all(|(measured, asymptote)| 8.0 / measured.fit.a < asymptote);
    let fixed = (transport.fit.b - mac.fit.b) / transport.fit.b;
    let printed = (paper.transport.b_us - paper.mac.b_us) / paper.transport.b_us;
    vec![
        Check::new(
            "each higher level reduces throughput",
            asymptotes[0] > asymptotes[1] && asymptotes[1] > asymptotes[2],
            asymptotes.map(|mbps| format!("{mbps:.1}")).join(", ") + " Mb/s",
        ),
        Check::new(
            "latency is linear at every level",
            worst < 0.02,
            format!("no point deviates by more than {:.2} %", worst * 100.0),
        ),
        Check::new(
            "throughput rises towards its asymptote as messages grow",
            measured.iter().all(rises),
            "at all sizes of the three levels",
        ),
        Check::new(
            "latency is the sum of the stages, throughput that of the slowest one: 8 / a is below the asymptote at \
             every level",
            slows,
            [mac, transport, user].map(|measured| format!("{:.1}", 8.0 / measured.fit.a)).join(", ") + " Mb/s",
        ),
        Check::new(
            "most of the transport's fixed latency is XTP and its interface, not the network",
            fixed > 0.9 && (fixed - printed).abs() < 0.02,
            format!("{:.0} %", fixed * 100.0),
        ),
    ]
}
