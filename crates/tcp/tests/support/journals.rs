//! Journals kept in memory, and their replay.

use journal::memory::MemoryJournals;
use tcp::journal::{LogEnd, Side, Stopped};
use tcp::{Replay, TcpConfig};

/// Sums of replays.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Replayed {
    pub(crate) logs: u64,
    pub(crate) entries: u64,
    pub(crate) plans: u64,
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    pub(crate) log_bytes: u64,
}

/// Replays all journals, which must be complete and equal.
pub(crate) fn replay_all(journals: &MemoryJournals) -> Replayed {
    let mut all = Replayed::default();
    for (index, (side, log)) in journals.logs().into_iter().enumerate() {
        all.logs += 1;
        all.log_bytes += log.len() as u64;
        let end = replay(&log, &mut all).unwrap_or_else(|stopped| panic!("{}", failure(index, side, &log, &stopped)));
        assert_eq!(end, LogEnd::Complete, "journal {index}, {side}");
    }
    all
}

/// Formats a failure, with the entries before it.
fn failure(index: usize, side: Side, log: &[u8], stopped: &Stopped) -> String {
    let mut lines = Vec::new();
    if let Ok(mut replay) = Replay::begin(log) {
        while let Ok(Some(step)) = replay.step() {
            lines.push(format!("#{} {} {step}\n", step.number, step.at.since_start()));
        }
    }
    let from = lines.len().saturating_sub(20);
    format!("journal {index}, {side}: {stopped}\n{}", lines[from..].concat())
}

/// Replays one log.
pub(crate) fn replay(log: &[u8], sums: &mut Replayed) -> Result<LogEnd, Stopped> {
    let mut replay = Replay::begin(log)?;
    while let Some(step) = replay.step()? {
        if let Some((segments, bytes)) = step.planned() {
            sums.plans += 1;
            sums.segments += segments;
            sums.bytes += bytes;
        }
    }
    sums.entries += replay.entry_count();
    Ok(replay.end().expect("no step is left"))
}

/// With `LITZ_REPLAY=1` every connection of every test is recorded, and replayed when its host is
/// dropped.
pub(crate) struct Checked(Option<MemoryJournals>);

impl Checked {
    pub(crate) fn by_environment() -> Self {
        Self(std::env::var_os("LITZ_REPLAY").map(|_| MemoryJournals::default()))
    }

    /// Returns the configuration of connections that are recorded, unless the test records them
    /// itself.
    pub(crate) fn config(&self, config: &TcpConfig) -> TcpConfig {
        let journal = config.journal.clone().or_else(|| self.0.as_ref().map(MemoryJournals::source));
        TcpConfig { journal, ..config.clone() }
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        if let Some(journals) = self.0.take()
            && !std::thread::panicking()
        {
            replay_all(&journals);
        }
    }
}
