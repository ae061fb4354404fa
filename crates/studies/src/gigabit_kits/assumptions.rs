//! Parameters that the Gigabit Kits report does not give.

use measure::Estimate;

use super::exchange::{Assumed, Rounded, Rules};
use super::fit;
use super::paper::{Printed, SLOW_MBPS};
use crate::choices::Choice;

/// Accepted relative deviation of a predicted rate.
pub(super) const TOLERANCE: f64 = 0.15;

/// Returns a computed number without an interval.
pub(super) const fn exact(mean: f64) -> Estimate {
    Estimate { mean, plus_minus: None }
}

/// Returns the numbers of rows that agree under these assumptions: the printed rows on the printed
/// side, slow or fast, and the fast rows within the tolerance, without the fitted one.
fn rows(assumed: Assumed) -> (usize, usize) {
    let printed = Printed::load();
    let (byte_ps, fitted) = (fit::byte_ps(&printed, assumed), fit::row(&printed));
    let (mut right, mut within) = (0, 0);
    for row in printed.measured() {
        let ours = fit::exchange(row, Rules::BOTH, assumed, byte_ps).rate_mbps();
        right += usize::from((ours < SLOW_MBPS) == row.is_slow());
        within += usize::from(!row.is_slow() && *row != fitted && (ours / row.rate_mbps - 1.0).abs() <= TOLERANCE);
    }
    (right, within)
}

fn or(choice: Choice, value: &str, change: impl Fn(&mut Assumed)) -> Choice {
    let mut assumed = Assumed::default();
    change(&mut assumed);
    let side = move |_: &_| exact(rows(assumed).0 as f64);
    let within = move |_: &_| exact(rows(assumed).1 as f64);
    choice.or(value, "printed rows on the printed side", side).or(value, "fast rows within 15 %", within)
}

/// Returns all choices.
pub(super) fn choices() -> Vec<Choice> {
    let rounded = Choice::new(
        "buffers",
        "receive buffers of a segment or more are rounded up to a multiple of 9140 bytes, send buffers are not",
        "BSD rounds both when a connection begins, and a size that is set later is not rounded; the report does not \
         say when its program sets them. This is the only case in which every printed row is on its side",
    );
    let rounded = or(rounded, "none is rounded", |assumed| assumed.rounded = Rounded::None);
    let rounded = or(rounded, "both are", |assumed| assumed.rounded = Rounded::Both);
    let timestamps = Choice::new(
        "timestamps",
        "on: 12 of 9140 bytes of each segment",
        "NetBSD offered them by default (RFC 1323); two segments without them are exactly the rounded buffer, so that \
         the first is acknowledged at once",
    );
    let timestamps = or(timestamps, "off", |assumed| assumed.timestamps = false);
    let segment = Choice::new("segment", "10 us for each segment, at either end", "not given; a few thousand cycles");
    let segment = or(segment, "5 us", |assumed| assumed.segment_us = 5);
    let segment = or(segment, "30 us", |assumed| assumed.segment_us = 30);
    let call = Choice::new("call", "5 us for each call of the application", "not given; a few thousand cycles");
    let call = or(call, "2 us", |assumed| assumed.call_us = 2);
    let call = or(call, "10 us", |assumed| assumed.call_us = 10);
    let sender = Choice::new(
        "sender_share",
        "a byte costs the sender half of what it costs the receiver",
        "not given; the receiver sums and copies in two passes, the sender in one",
    );
    let sender = or(sender, "0.8", |assumed| assumed.sender_share = 0.8);
    let sender = or(sender, "1", |assumed| assumed.sender_share = 1.0);
    let answer = Choice::new(
        "actions",
        "each packet is answered before the next one: by one of its length for rw, by 4 bytes for r; for rw the rate \
         counts both directions",
        "not given; the printed rates of both actions are nearly the same and do not depend on the buffer where a \
         packet fits into it, so packets do not follow each other freely",
    );
    let answer = or(answer, "100 bytes for r", |assumed| assumed.answer_bytes = 100);
    let link = Choice::new("link_us", "10 us besides the transmission", "not given; one switch and short cables");
    let link = or(link, "30 us", |assumed| assumed.link_us = 30);
    vec![rounded, timestamps, segment, call, sender, answer, link]
}
