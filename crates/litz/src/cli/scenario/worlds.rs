//! The worlds that a scenario can run in.

use scenario::memory::Memory;
use scenario::simulated::{Machine, Sim};
use scenario::world::World;

#[cfg(target_os = "linux")]
use super::netns;
use super::options::WorldName;

impl WorldName {
    /// Whether its time is ours.
    pub(super) const fn is_live(self) -> bool {
        matches!(self, Self::Netns)
    }

    /// For people.
    pub(super) const fn place(self) -> &'static str {
        match self {
            Self::Memory => "in memory",
            Self::Sim => "simulated",
            Self::Netns => "between network namespaces",
        }
    }

    /// Whether this machine and user have it.
    ///
    /// # Errors
    /// In words: what is missing, and what to do.
    pub(super) fn check(self) -> Result<(), String> {
        match self {
            Self::Memory | Self::Sim => Ok(()),
            #[cfg(target_os = "linux")]
            Self::Netns => {
                netns::check_machine().map_err(|words| format!("--world netns: {words}, or use --world memory"))
            }
            #[cfg(not(target_os = "linux"))]
            Self::Netns => Err("network namespaces are there on Linux only: use --world memory".to_owned()),
        }
    }

    /// The world, whose hosts are such machines if it simulates any. Where there are no network namespaces, [`check`](Self::check) has said so.
    pub(super) fn make(self, machine: Option<&Machine>) -> Box<dyn World> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Netns => Box::new(netns::Netns::default()),
            Self::Sim => Box::new(Sim { machine: machine.cloned() }),
            _ => Box::new(Memory),
        }
    }
}
