//! Journals kept in memory, and their replay.

use journal::memory::MemoryJournals;
use quic::journal::{LogEnd, Stopped};
use quic::{JournalSource, Replay, Side};

/// The journals of all connections of a run, one after the other.
#[derive(Clone, Default)]
pub struct Journals(MemoryJournals);

/// The result of a replay.
#[derive(Debug, Default, Clone, Copy)]
pub struct Replayed {
    pub logs: u64,
    pub entries: u64,
    pub plans: u64,
    pub datagrams: u64,
    pub bytes: u64,
    pub log_bytes: u64,
}

impl Journals {
    /// A journal source for a configuration.
    pub fn source(&self) -> JournalSource {
        self.0.source()
    }

    /// The journals so far, one per connection.
    pub fn logs(&self) -> Vec<(Side, Vec<u8>)> {
        self.0.logs()
    }

    /// Replays all journals, which must be complete and equal.
    pub fn replay(&self) -> Replayed {
        let mut all = Replayed::default();
        for (index, (side, log)) in self.logs().into_iter().enumerate() {
            all.logs += 1;
            all.log_bytes += log.len() as u64;
            let end = replay(&log, &mut all).unwrap_or_else(|stopped| panic!("journal {index}, {side}: {stopped}"));
            assert_eq!(end, LogEnd::Complete, "journal {index}, {side}");
        }
        all
    }
}

/// Replays one log.
pub fn replay(log: &[u8], sums: &mut Replayed) -> Result<LogEnd, Stopped> {
    let mut replay = Replay::begin(log)?;
    while let Some(step) = replay.step()? {
        if let Some((datagrams, bytes)) = step.planned() {
            sums.plans += 1;
            sums.datagrams += datagrams;
            sums.bytes += bytes;
        }
    }
    sums.entries += replay.entry_count();
    Ok(replay.end().expect("no step is left"))
}

/// With `LITZ_REPLAY=1` every connection of every test is recorded, and replayed when its host is
/// dropped.
pub struct Checked(Option<Journals>);

impl Checked {
    pub fn by_environment() -> Self {
        Self(std::env::var_os("LITZ_REPLAY").map(|_| Journals::default()))
    }

    pub fn source(&self) -> Option<JournalSource> {
        self.0.as_ref().map(Journals::source)
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        if let Some(journals) = self.0.take()
            && !std::thread::panicking()
        {
            journals.replay();
        }
    }
}
