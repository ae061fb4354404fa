//! What document 003 does not say: one list for its studies, tried on each one's headline figure.

use measure::Estimate;

use super::costs::Split;
use super::levels::{exact, setup};
use super::measure::{repetitions, throughput_mbps};
use super::paper::Paper;
use super::pipeline::{Level, Setup};
use super::rate::RateLimit;
use crate::Choice;
use crate::study::Options;

/// A figure of a study that shows how much hangs on a choice: of a setup that `split` makes and `change` changes.
#[derive(Clone, Copy)]
pub(super) struct Headline {
    /// With its unit.
    pub(super) name: &'static str,
    pub(super) split: fn(&Paper) -> Split,
    /// Makes the study's setup of one for the user level.
    pub(super) setup: fn(&Paper, Setup) -> Setup,
    /// Of the setup and of the longest message of its table.
    pub(super) figure: fn(&Setup, u64, &Options) -> Estimate,
    pub(super) message_bytes: fn(&Split) -> u64,
}

/// Throughput at the longest message.
pub(super) fn asymptote(setup: &Setup, bytes: u64, options: &Options) -> Estimate {
    exact(throughput_mbps(setup, bytes, repetitions(Paper::load().messages, options), options))
}

impl Headline {
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

/// All that the system rests on.
pub(super) fn choices(headline: Headline) -> Vec<Choice> {
    let Split { frame_bytes, ring_m, .. } = (headline.split)(&Paper::load());
    let frame = Choice::new(
        "frame_bytes",
        format!("{frame_bytes} bytes, the longest message of the tables but where it is named"),
        "the range of sizes is not given; this is the longest payload of the standard",
    );
    let frame = headline.or(frame, "4096 bytes", |split| split.frame_bytes = 4096, |_| {});
    let frame = headline.or(frame, "2048 bytes", |split| split.frame_bytes = 2048, |_| {});
    let host = Choice::new(
        "host_sender",
        "half of what user level adds is the sender's",
        "not given; either end does about the same",
    );
    let host = headline.or(host, "40 %", |split| split.host_sender = 0.4, |_| {});
    let host = headline.or(host, "60 %", |split| split.host_sender = 0.6, |_| {});
    let mut all = vec![frame, host];
    all.extend(limits(headline));
    let ring = Choice::new("ring", format!("{ring_m} m"), "not given; two chassis side by side");
    let ring = headline.or(ring, "10 m", |split| split.ring_m = 10, |_| {});
    all.push(headline.or(ring, "5000 m", |split| split.ring_m = 5_000, |_| {}));
    all
}

fn limits(headline: Headline) -> Vec<Choice> {
    let limited = |change: fn(&mut RateLimit)| {
        move |setup: &mut Setup| {
            if let Some(limit) = &mut setup.limit {
                change(limit);
            }
        }
    };
    let refresh = Choice::new(
        "refresh",
        "a burst at once, full again when burst / rate have passed since its first byte: 6.67 ms",
        "the paper has the two numbers and not the rule; this is how XTP is usually described, not confirmed",
    );
    let refresh = headline.or(refresh, "bursts of 1,000 bytes", |_| {}, limited(|limit| limit.burst_bytes = 1_000));
    let refresh = headline.or(refresh, "bursts of 100,000 bytes", |_| {}, limited(|limit| limit.burst_bytes = 100_000));
    let cuts = Choice::new("cuts_frames", "a frame is cut where the burst ends", "not given; XTP counts bytes");
    let whole = limited(|limit| limit.cuts_frames = false);
    let cuts = headline.or(cuts, "a frame waits until it fits whole", |_| {}, whole);
    let cuts = headline.or(cuts, "the same with frames of 3333 bytes", |split| split.frame_bytes = 3_333, whole);
    let window = Choice::new(
        "window",
        "16 frames under way before the receiver must have taken one",
        "not given; more than a burst of the user's limit",
    );
    let window = headline.or(window, "2 frames", |_| {}, |setup| setup.rooms.window_frames = 2);
    let window = headline.or(window, "64 frames", |_| {}, |setup| setup.rooms.window_frames = 64);
    let rooms = Choice::new(
        "rooms",
        "4 messages between host and board, 2 frames between board and ring",
        "not given; a card fills a frame while the other leaves",
    );
    let rooms = headline.or(
        rooms,
        "1 and 1",
        |_| {},
        |setup| {
            (setup.rooms.board_messages, setup.rooms.card_frames) = (1, 1);
        },
    );
    let rooms = headline.or(
        rooms,
        "16 and 16",
        |_| {},
        |setup| {
            (setup.rooms.board_messages, setup.rooms.card_frames) = (16, 16);
        },
    );
    vec![refresh, cuts, window, rooms]
}
