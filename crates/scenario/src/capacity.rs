//! The capacity of the links, for
//! [`CheckKind::ShareOfCapacity`](crate::model::CheckKind::ShareOfCapacity).

use netem::{Change, LineState, LinkConfig, OPPORTUNITY_BYTES};
use units::{Duration, Instant};

use crate::faults::scheduled;
use crate::model::{PAYLOAD_SHARE, Scenario};

/// Returns the number of application bytes that the links under `paths` can carry towards the
/// receiving host between two times of the run: the sum over the links of rate times time, without
/// the time in which a link is silent or held, times [`PAYLOAD_SHARE`]. Loss is not deducted.
/// Returns `None` if a link has neither rate nor trace, so that its capacity is unbounded.
pub fn capacity_bytes(scenario: &Scenario, paths: &[usize], from: Duration, to: Duration) -> Option<u64> {
    let mut line_bytes: u64 = 0;
    for link in scenario.links_under(paths) {
        line_bytes = line_bytes.saturating_add(line_bytes_of(&scheduled(scenario, link, 0), from, to)?);
    }
    let (payload, frame) = PAYLOAD_SHARE;
    Some((u128::from(line_bytes) * u128::from(payload) / u128::from(frame)) as u64)
}

fn line_bytes_of(config: &LinkConfig, from: Duration, to: Duration) -> Option<u64> {
    let changes: &[(Duration, Change)] = config.schedule.as_ref().map_or(&[], |schedule| schedule.changes());
    let mut now = LinkConfig { schedule: None, ..config.clone() };
    let (mut since, mut bytes) = (Duration::ZERO, 0_u64);
    for (at, change) in changes {
        bytes = bytes.saturating_add(carried(&now, since.max(from), (*at).min(to))?);
        change.apply(&mut now);
        since = *at;
    }
    Some(bytes.saturating_add(carried(&now, since.max(from), to)?))
}

/// Returns the number of line bytes carried under constant settings.
fn carried(config: &LinkConfig, from: Duration, to: Duration) -> Option<u64> {
    if to <= from {
        return Some(0);
    }
    match (&config.rate, &config.trace) {
        _ if config.state != LineState::Up => Some(0),
        (Some(rate), _) => Some(rate.bytes_in(to - from)),
        (None, Some(trace)) => {
            let before = |at: Duration| trace.first_at_or_after(Instant::ZERO + at);
            Some((before(to) - before(from)) * OPPORTUNITY_BYTES)
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn faults_and_traces_count_by_their_duration() {
        let text = "
            [[link]]
            name = 'a'
            rate = '100Mb/s'
            [[link]]
            name = 'b'
            trace = 'one-a-millisecond'
            [[fault]]
            link = 'a'
            at = '1s'
            until = '2s'
            state = 'silent'
            [[fault]]
            link = 'a'
            at = '3s'
            rate = '40Mb/s'
        ";
        let scenario = scenario(text);
        let payload = |line_bytes: u64| line_bytes * 1448 / 1514;
        let capacity = |paths: &[usize], from, to| capacity_bytes(&scenario, paths, ms(from), ms(to)).unwrap();
        assert_eq!(capacity(&[0], 0, 1000), payload(12_500_000));
        assert_eq!(capacity(&[0], 500, 2500), payload(12_500_000));
        assert_eq!(capacity(&[0], 1000, 2000), 0);
        assert_eq!(capacity(&[0], 2000, 5000), payload(12_500_000 + 10_000_000));
        assert_eq!(capacity(&[1], 1000, 2000), payload(1_500_000));
        assert_eq!(capacity(&[0, 1], 2000, 2800), payload(10_000_000 + 1_200_000));
    }
}
