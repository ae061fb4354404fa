//! Detects scenarios in which virtual time would not advance: a link without delay between hosts
//! without processing cost. Packets and acknowledgements would be exchanged forever at one virtual
//! time.

use netem::{Change, LinkConfig};
use units::Duration;

use crate::faults::scheduled;
use crate::model::Scenario;
use crate::simulated::Costs;

/// Checks that virtual time advances in a run over `paths`, with hosts that have these processing
/// costs (`None`: no cost).
///
/// # Errors
/// Returns a message that names the key at fault, if a packet crosses a link under `paths` in both
/// directions and is processed at both ends in zero time.
pub fn check_time(scenario: &Scenario, paths: &[usize], costs: Option<&Costs>) -> Result<(), String> {
    let bytes = scenario.transport.datagram_size;
    if costs.is_some_and(|costs| !costs.are_zero_at(bytes)) {
        return Ok(());
    }
    let since = |link| Some((link, zero_time_since(scenario, link)?));
    let Some((link, since)) = scenario.links_under(paths).into_iter().find_map(since) else { return Ok(()) };
    let name = &scenario.links[link].name;
    let when = if since.is_zero() { String::new() } else { format!(" from {since} on") };
    let Some(_) = costs else {
        return Err(format!(
            "link.rate: link {name:?} takes no time{when}, and neither do the hosts: give the link a rate, a trace or a delay, or \
             the hosts a profile (--world sim --profile FILE)"
        ));
    };
    Err(format!(
        "transport.datagram-size: in the profile a datagram of {bytes} bytes takes no time at either end, and link {name:?} takes \
         none{when}: profile this size too (`litz profile --sizes`), or give the link a rate, a trace or a delay"
    ))
}

/// Returns the time from which a link takes no time in both directions, by its settings or by
/// faults.
fn zero_time_since(scenario: &Scenario, link: usize) -> Option<Duration> {
    let mut now = [0, 1].map(|direction| scheduled(scenario, link, direction));
    let mut changes: Vec<(Duration, usize, Change)> = Vec::new();
    for (direction, config) in now.iter_mut().enumerate() {
        let schedule = config.schedule.take();
        let steps = schedule.iter().flat_map(|schedule| schedule.changes());
        changes.extend(steps.map(|(at, change)| (*at, direction, change.clone())));
    }
    // The sort is stable: simultaneous changes keep their order.
    changes.sort_by_key(|(at, ..)| *at);
    let (mut since, mut changes) = (Duration::ZERO, changes.into_iter().peekable());
    loop {
        while let Some((_, direction, change)) = changes.next_if(|(at, ..)| *at <= since) {
            change.apply(&mut now[direction]);
        }
        if now.iter().all(takes_no_time) {
            return Some(since);
        }
        since = changes.peek()?.0;
    }
}

const fn takes_no_time(config: &LinkConfig) -> bool {
    config.rate.is_none() && config.trace.is_none() && config.delay.is_zero() && config.jitter.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario;

    fn message(body: &str, paths: &[usize]) -> String {
        check_time(&scenario(body), paths, None).err().unwrap_or_default()
    }

    #[test]
    fn a_rate_a_trace_or_a_delay_in_either_direction_takes_time() {
        for link in [
            "rate = '1Gb/s'",
            "trace = 'one-a-millisecond'",
            "delay = '1us'",
            "jitter = { distribution = 'uniform', max = '1us' }",
            "back = { delay = '1us' }",
        ] {
            assert_eq!(message(&format!("[[link]]\nname = 'a'\n{link}"), &[0]), "", "{link}");
        }
        let other = "loss = '1%'\nqueue = '1MiB'\nback = { loss = '0%' }";
        let found = message(&format!("[[link]]\nname = 'a'\n{other}"), &[0]);
        assert!(found.starts_with("link.rate: link \"a\" takes no time, ") && found.contains("a delay"), "{found}");
    }

    #[test]
    fn unused_links_are_ignored() {
        let body = "[[link]]\nname = 'slow'\nrate = '1Mb/s'\n[[link]]\nname = 'quick'";
        assert_eq!(message(body, &[0]), "");
        for paths in [&[1][..], &[0, 1]] {
            assert!(message(body, paths).contains("\"quick\""), "{paths:?}");
        }
    }

    #[test]
    fn faults_may_add_or_remove_the_delay_of_a_link() {
        let link = "[[link]]\nname = 'a'\n";
        let fault = |at: &str, what: &str| format!("[[fault]]\nlink = 'a'\nat = '{at}'\n{what}\n");
        assert_eq!(message(&format!("{link}{}", fault("0", "rate = '1Mb/s'")), &[0]), "");
        assert!(message(&format!("{link}{}", fault("1s", "rate = '1Mb/s'")), &[0]).contains(" takes no time, "));
        let body = |what: &str| format!("{link}delay = '1ms'\n{}", fault("2s", what));
        assert!(
            message(&body("delay = '0'"), &[0]).contains("takes no time from 2"),
            "{}",
            message(&body("delay = '0'"), &[0])
        );
        assert_eq!(message(&body("delay = '0'\ndirection = 'back'"), &[0]), "");
        assert_eq!(message(&body("delay = '0'\nrate = '1Mb/s'"), &[0]), "");
    }
}
