//! Parameters that the SAFENET evaluation does not give. All studies share the list; alternatives
//! are evaluated on the main figure of each study.

use measure::Estimate;

use super::costs::Split;
use super::levels::{exact, setup};
use super::measure::{repetitions, throughput_mbps};
use super::paper::Paper;
use super::pipeline::{Level, Setup};
use super::rate::RateLimit;
use crate::choices::Choice;
use crate::study::Options;

/// A figure of a study that shows its sensitivity to a choice. The setup is made by `split` and
/// modified by `change`.
#[derive(Clone, Copy)]
pub(super) struct MainFigure {
    /// The name with its unit.
    pub(super) name: &'static str,
    pub(super) split: fn(&Paper) -> Split,
    /// Function that makes the study's setup from one for user level.
    pub(super) setup: fn(&Paper, Setup) -> Setup,
    /// Function that computes the figure from the setup and the longest message of its table.
    pub(super) figure: fn(&Setup, u64, &Options) -> Estimate,
    pub(super) message_bytes: fn(&Split) -> u64,
}

/// Returns the throughput at the longest message.
pub(super) fn asymptote(setup: &Setup, bytes: u64, options: &Options) -> Estimate {
    exact(throughput_mbps(setup, bytes, repetitions(Paper::load().messages, options), options))
}

impl MainFigure {
    fn or(
        self,
        choice: Choice,
        value: &'static str,
        split: impl Fn(&mut Split),
        change: impl Fn(&mut Setup),
    ) -> Choice {
        let paper = Paper::load();
        let mut other = (self.split)(&paper);
        split(&mut other);
        let mut changed = (self.setup)(&paper, setup(&paper, &other, Level::User));
        change(&mut changed);
        let (figure, bytes) = (self.figure, (self.message_bytes)(&other));
        choice.or(value, self.name, move |options| figure(&changed, bytes, options))
    }
}

/// Returns all assumptions of the system.
pub(super) fn choices(main_figure: MainFigure) -> Vec<Choice> {
    let Split { frame_bytes, ring_m, .. } = (main_figure.split)(&Paper::load());
    let frame = Choice::new(
        "frame_bytes",
        format!("{frame_bytes} bytes, the longest message of the tables unless stated otherwise"),
        "the range of sizes is not given; this is the longest payload in the standard",
    );
    let frame = main_figure.or(frame, "4096 bytes", |split| split.frame_bytes = 4096, |_| {});
    let frame = main_figure.or(frame, "2048 bytes", |split| split.frame_bytes = 2048, |_| {});
    let host = Choice::new(
        "host_sender",
        "half of the cost that user level adds is at the sender",
        "not given; both ends do about the same work",
    );
    let host = main_figure.or(host, "40 %", |split| split.host_sender = 0.4, |_| {});
    let host = main_figure.or(host, "60 %", |split| split.host_sender = 0.6, |_| {});
    let mut all = vec![frame, host];
    all.extend(limits(main_figure));
    let ring = Choice::new("ring", format!("{ring_m} m"), "not given; two adjacent chassis");
    let ring = main_figure.or(ring, "10 m", |split| split.ring_m = 10, |_| {});
    all.push(main_figure.or(ring, "5000 m", |split| split.ring_m = 5_000, |_| {}));
    all
}

fn limits(main_figure: MainFigure) -> Vec<Choice> {
    let limited = |change: fn(&mut RateLimit)| {
        move |setup: &mut Setup| {
            if let Some(limit) = &mut setup.limit {
                change(limit);
            }
        }
    };
    let refresh = Choice::new(
        "refresh",
        "a burst at once, refilled when burst / rate has passed since its first byte: 6.67 ms",
        "the paper gives the two numbers but not the rule; this is the usual description of XTP, not confirmed",
    );
    let refresh = main_figure.or(refresh, "bursts of 1,000 bytes", |_| {}, limited(|limit| limit.burst_bytes = 1_000));
    let refresh =
        main_figure.or(refresh, "bursts of 100,000 bytes", |_| {}, limited(|limit| limit.burst_bytes = 100_000));
    let cuts = Choice::new("cuts_frames", "a frame is cut at the end of the burst", "not given; XTP counts bytes");
    let whole = limited(|limit| limit.cuts_frames = false);
    let cuts = main_figure.or(cuts, "a frame waits until all of it fits", |_| {}, whole);
    let cuts = main_figure.or(cuts, "the same with frames of 3333 bytes", |split| split.frame_bytes = 3_333, whole);
    let window = Choice::new(
        "window",
        "16 frames in flight before the receiver must have taken one",
        "not given; more than a burst of the user's limit",
    );
    let window = main_figure.or(window, "2 frames", |_| {}, |setup| setup.queue_limits.window_frames = 2);
    let window = main_figure.or(window, "64 frames", |_| {}, |setup| setup.queue_limits.window_frames = 64);
    let queue_limits = Choice::new(
        "queue_limits",
        "4 messages between host and board, 2 frames between board and ring",
        "not given; a card fills one frame while it sends the other",
    );
    let queue_limits = main_figure.or(
        queue_limits,
        "1 and 1",
        |_| {},
        |setup| {
            (setup.queue_limits.board_messages, setup.queue_limits.card_frames) = (1, 1);
        },
    );
    let queue_limits = main_figure.or(
        queue_limits,
        "16 and 16",
        |_| {},
        |setup| {
            (setup.queue_limits.board_messages, setup.queue_limits.card_frames) = (16, 16);
        },
    );
    vec![refresh, cuts, window, queue_limits]
}
