//! The setup of a run's connection, shared by all worlds: transport settings, and the opening of
//! paths.

use quic::TransportConfig;
use units::Duration;

use crate::model::Scenario;

/// The initial connection window, in bytes, as in the `litz` command.
const FIRST_WINDOW: u64 = 8 << 20;

/// Returns the transport settings at one host (0 is the sending host) for `path_count` paths.
pub fn transport_config(scenario: &Scenario, host: usize, path_count: usize) -> TransportConfig {
    let (host, transport) = (&scenario.hosts[host], &scenario.transport);
    TransportConfig::default()
        .with_max_paths(path_count as u32)
        .with_scheduler(transport.scheduler)
        .with_congestion(transport.congestion)
        .with_policy(transport.policy)
        .with_datagram_size(transport.datagram_size)
        // The links of scenarios do not mark packets.
        .with_ecn(false)
        .with_idle_timeout(transport.idle_timeout)
        // Links may be so slow or so lossy that the handshake takes long.
        .with_handshake_timeout(Duration::ZERO)
        .with_connection_window(host.receive_window.min(FIRST_WINDOW))
        .with_connection_window_max(host.receive_window)
        .with_stream_window_max((host.receive_window / 2).max(1))
        .with_send_buffer_max(host.send_buffer)
}

/// Path on which the connection begins, and those that it opens when the handshake is confirmed.
/// Paths are indices into those of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPlan {
    /// The first path that is not a backup; the first path if all are.
    pub first: usize,
    /// Whether the first path must be marked as a backup: it is one, and other paths exist.
    pub is_first_backup: bool,
    /// The other paths, and whether each is a backup.
    pub others: Vec<(usize, bool)>,
}

impl PathPlan {
    /// Creates the plan for a run over `paths`, which are indices into the scenario's paths.
    pub fn new(scenario: &Scenario, paths: &[usize]) -> Self {
        let is_backup = |place: usize| scenario.paths[paths[place]].is_backup;
        let first = (0..paths.len()).find(|&place| !is_backup(place)).unwrap_or(0);
        let others: Vec<_> =
            (0..paths.len()).filter(|&place| place != first).map(|place| (place, is_backup(place))).collect();
        Self { first, is_first_backup: !others.is_empty() && is_backup(first), others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario;

    #[test]
    fn a_connection_begins_on_the_first_path_that_is_not_a_backup() {
        let scenario = scenario(
            "[[link]]\nname = 'a'\n[[path]]\nlink = 'a'\nname = 'b1'\nbackup = true\n[[path]]\nlink = 'a'\n\
             [[path]]\nlink = 'a'\nname = 'b2'\nbackup = true",
        );
        let plan = |paths: &[usize]| PathPlan::new(&scenario, paths);
        let expected = PathPlan { first: 1, is_first_backup: false, others: vec![(0, true), (2, true)] };
        assert_eq!(plan(&[0, 1, 2]), expected);
        assert_eq!(plan(&[0, 2]), PathPlan { first: 0, is_first_backup: true, others: vec![(1, true)] });
        assert_eq!(plan(&[2]), PathPlan { first: 0, is_first_backup: false, others: Vec::new() });
    }
}
