//! The requirements of a run between network namespaces.

use netem::{Change, LinkConfig, Trace};
use rustix::thread::{CapabilitySet, capabilities};
use scenario::faults::scheduled;
use scenario::model::Scenario;
use scenario::world::{RunPlan, WorldError};
use units::Rate;

use super::network::HEADER_BYTES;

/// Maximum total rate of the links of a run, in each direction. The links' threads share the
/// machine with both ends of the connection: on two processors they carry 9 Gb/s in batches without
/// encryption. If a machine cannot keep up with a lower rate, the run has a note.
const RATE_MAX: Rate = Rate::from_mbps(10_000);

/// Checks that this process may create namespaces and devices.
///
/// # Errors
/// A message for the user.
pub(in crate::cli) fn check_machine() -> Result<(), String> {
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    if !capabilities(None).is_ok_and(|sets| sets.effective.contains(needed)) {
        let message = "network namespaces and devices need CAP_SYS_ADMIN and CAP_NET_ADMIN: run it as root";
        return Err(message.to_owned());
    }
    Ok(())
}

/// Checks that the emulator can provide the links of the scenario.
///
/// # Errors
/// [`WorldError::Unsuitable`].
pub(super) fn check_scenario(scenario: &Scenario, plan: &RunPlan) -> Result<(), WorldError> {
    for direction in 0..2 {
        let mut sum = 0_u64;
        for link in scenario.links_under(&plan.paths) {
            let config = scheduled(scenario, link, direction);
            if config.overhead_bytes < HEADER_BYTES {
                let message = format!(
                    "link {:?}: between network namespaces each packet has {HEADER_BYTES} bytes of IPv4 and UDP headers, \
                     so overhead must be at least {HEADER_BYTES}B: change it, or use --world memory",
                    scenario.links[link].name
                );
                return Err(WorldError::Unsuitable(message));
            }
            sum = sum.saturating_add(rate_max(&config).map_or(0, Rate::as_bps));
        }
        if sum > RATE_MAX.as_bps() {
            let message = format!(
                "its links carry {} together, but the maximum between network namespaces is {RATE_MAX}: \
                 use --world memory",
                Rate::from_bps(sum)
            );
            return Err(WorldError::Unsuitable(message));
        }
    }
    Ok(())
}

/// The maximum rate of a link over the run; none if it has neither rate nor trace, and so no limit.
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
        let scenario = scenario::parse::parse("x.toml", &text, &|_| Err(String::new())).expect("a valid scenario");
        check_scenario(&scenario, &RunPlan { paths: paths.to_vec(), seed: 1 }).map_err(|error| error.to_string())
    }

    #[test]
    fn too_high_a_total_rate_and_too_small_an_overhead_are_refused() {
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
