//! The worlds that a scenario can run in.

use scenario::memory::Memory;
use scenario::simulated::{Machine, Sim};
use scenario::world::World;

#[cfg(target_os = "linux")]
use super::netns;
use super::options::WorldName;

impl WorldName {
    /// Whether runs take real time.
    pub(super) const fn is_live(self) -> bool {
        matches!(self, Self::Netns)
    }

    /// A description for the user.
    pub(super) const fn place(self) -> &'static str {
        match self {
            Self::Memory => "in memory",
            Self::Sim => "simulated",
            Self::Netns => "between network namespaces",
        }
    }

    /// Checks that this user and machine can run this world.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn check(self) -> Result<(), String> {
        match self {
            Self::Memory | Self::Sim => Ok(()),
            #[cfg(target_os = "linux")]
            Self::Netns => {
                netns::check_machine().map_err(|message| format!("--world netns: {message}, or use --world memory"))
            }
            #[cfg(not(target_os = "linux"))]
            Self::Netns => Err("network namespaces need Linux: use --world memory".to_owned()),
        }
    }

    /// Creates the world; `machine` describes its hosts if it simulates machines.
    /// [`check`](Self::check) must have succeeded.
    pub(super) fn make(self, machine: Option<&Machine>) -> Box<dyn World> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Netns => Box::new(netns::Netns::default()),
            Self::Sim => Box::new(Sim { machine: machine.cloned() }),
            _ => Box::new(Memory),
        }
    }
}
