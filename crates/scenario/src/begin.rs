//! How the connection of a run begins, the same in every world: its settings, and which paths it opens when.

use quic::TransportConfig;

use crate::model::Scenario;

/// Credit that streams begin with, in bytes: as a connection of the command does.
const FIRST_WINDOW: u64 = 8 << 20;

/// The settings of the connection at one host, 0 for the one that sends, for so many paths.
pub fn transport_config(scenario: &Scenario, host: usize, path_count: usize) -> TransportConfig {
    let (host, transport) = (&scenario.hosts[host], &scenario.transport);
    TransportConfig {
        max_paths: path_count as u32,
        scheduler: transport.scheduler,
        congestion: transport.congestion,
        policy: transport.policy,
        datagram_size: transport.datagram_size,
        idle_timeout: transport.idle_timeout,
        connection_window: host.receive_window.min(FIRST_WINDOW),
        connection_window_max: host.receive_window,
        stream_window_max: (host.receive_window / 2).max(1),
        send_buffer_max: host.send_buffer,
        ..TransportConfig::default()
    }
}

/// Which of a run's paths the connection begins on, and which it opens when the handshake is confirmed. Paths are named by
/// their place among those of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPlan {
    /// The first that is no backup; the first if all are.
    pub first: usize,
    /// It must be told to stand back: it is a backup, and has others beside it.
    pub is_first_backup: bool,
    /// The others, and whether each is a backup.
    pub others: Vec<(usize, bool)>,
}

impl PathPlan {
    /// For a run over `paths`, which are the scenario's.
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
    fn a_connection_begins_on_the_first_path_that_is_no_backup() {
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
