//! What cannot be run between network namespaces, and who may.

use netem::{Change, LinkConfig, Trace};
use rustix::thread::{CapabilitySet, capabilities};
use scenario::faults::scheduled;
use scenario::model::Scenario;
use scenario::world::{Order, WorldError};
use units::Rate;

use super::network::HEADER_BYTES;

/// What the links of a run may carry together, each way. The threads of the links share the machine with both ends of the
/// connection: on two processors they carry 9 Gb/s in batches when nobody encrypts. What a machine cannot do below that,
/// the notes of the run tell.
const RATE_MAX: Rate = Rate::from_mbps(10_000);

/// Whether this process may make namespaces and devices.
///
/// # Errors
/// In words: what is missing, and what to do.
pub(in crate::cli) fn check_machine() -> Result<(), String> {
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    if !capabilities(None).is_ok_and(|sets| sets.effective.contains(needed)) {
        let words = "network namespaces and devices need CAP_SYS_ADMIN and CAP_NET_ADMIN: run it as root";
        return Err(words.to_owned());
    }
    Ok(())
}

/// Whether the emulator can be what the scenario asks for.
///
/// # Errors
/// [`WorldError::Unsuitable`].
pub(super) fn check_scenario(scenario: &Scenario, order: &Order) -> Result<(), WorldError> {
    for direction in 0..2 {
        let mut sum = 0_u64;
        for link in scenario.links_under(&order.paths) {
            let config = scheduled(scenario, link, direction);
            if config.overhead_bytes < HEADER_BYTES {
                let words = format!(
                    "link {:?}: between network namespaces each packet has {HEADER_BYTES} bytes of IPv4 and UDP, so \
                     overhead must be at least {HEADER_BYTES}B; --world memory takes less",
                    scenario.links[link].name
                );
                return Err(WorldError::Unsuitable(words));
            }
            sum = sum.saturating_add(rate_max(&config).map_or(0, Rate::as_bps));
        }
        if sum > RATE_MAX.as_bps() {
            let words = format!(
                "its links carry {} together, and between network namespaces {RATE_MAX} is the most: use --world memory",
                Rate::from_bps(sum)
            );
            return Err(WorldError::Unsuitable(words));
        }
    }
    Ok(())
}

/// The highest rate that a link ever has; none without rate and trace, when it carries what comes.
fn rate_max(config: &LinkConfig) -> Option<Rate> {
    let changes = config.schedule.as_ref().map_or(&[][..], |schedule| schedule.changes());
    let later = changes.iter().filter_map(|(_, change)| match change {
        Change::Rate(rate) => *rate,
        _ => None,
    });
    later.chain(config.rate).chain(config.trace.as_ref().map(Trace::mean_rate)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(links: &str, paths: &[usize]) -> Result<(), String> {
        let text = format!(
            "version = 1\n[scenario]\nname = 'x'\nabout = 'x'\nduration = '9s'\n{links}\n[[workload]]\nkind = 'stream'\n"
        );
        let scenario = scenario::parse::parse("x.toml", &text, &|_| Err(String::new())).expect("it is right");
        check_scenario(&scenario, &Order { paths: paths.to_vec(), seed: 1 }).map_err(|error| error.to_string())
    }

    #[test]
    fn links_that_are_too_fast_together_or_too_light_are_refused() {
        let two =
            "[[link]]\nname = 'a'\nrate = '6Gb/s'\nback = { rate = '1Mb/s' }\n[[link]]\nname = 'b'\nrate = '6Gb/s'";
        assert_eq!((check(two, &[0]), check(two, &[1])), (Ok(()), Ok(())));
        assert!(check(two, &[0, 1]).unwrap_err().contains("12.00 Gb/s together"));
        let later = "[[link]]\nname = 'a'\nrate = '1Mb/s'\n[[fault]]\nlink = 'a'\nat = '1s'\nrate = '40Gb/s'";
        assert!(check(later, &[0]).unwrap_err().contains("40.00 Gb/s together"));
        let light = "[[link]]\nname = 'a'\noverhead = '42B'\nback = { overhead = '27B' }";
        assert!(check(light, &[0]).unwrap_err().contains("at least 28B"));
        assert_eq!(check("[[link]]\nname = 'a'\noverhead = '28B'", &[0]), Ok(()));
    }
}
