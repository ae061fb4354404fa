//! The thread that watches what a tunnel has set, and makes it again.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration as StdDuration;

use net::routing::{self, Observed, RoutingNews, RoutingWatch, RoutingWatchWaker, Setting};
use net::{MonotonicClock, nftables};
use tunnel::Prefix;
use tunnel::kill_switch::{KillSwitch, TABLE};
use tunnel::upkeep::{Notice, Presence, Upkeep};
use units::{Duration, Instant};

use super::changes::Changes;
use super::host_network::MARK;
use super::name_service::{NameService, Resolver};
use super::privileges::programs_have_net_admin;
use super::upkeep_report::UpkeepReport;

/// How often the file with the name servers is read: no notification covers a file that is mounted, linked or replaced.
/// With the pauses of [`Upkeep`] it is back within 200 ms.
const NAMES_INTERVAL: Duration = Duration::from_millis(100);

/// Pause after an error of the system: changes meanwhile are seen at the next look.
const PAUSE: Duration = Duration::from_millis(200);

/// How long the thread waits where nothing is due.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// One thing that is kept. A device comes before what belongs to it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kept {
    /// The packet filter of a kill switch.
    Filter,
    Setting(Setting),
    /// The name servers.
    Names,
}

/// The settings that a tunnel has made, and how to undo them.
pub(super) struct State {
    pub(super) folder: PathBuf,
    pub(super) device: String,
    pub(super) changes: Changes,
    pub(super) upkeep: Upkeep<Kept>,
    /// The packet filter as it was asked for, and as `nft` shows it.
    filter: Option<(KillSwitch, String)>,
    /// Whether the packet filter may have changed since it was read last.
    filter_is_unread: bool,
    /// Whether the packet filter was found to be missing or changed.
    filter_is_missing: bool,
    /// Whether the routes could not be read at the last look.
    is_blind: bool,
    /// The systemd-resolved that was told the name servers.
    resolver: Option<Resolver>,
    /// The name servers that were asked for.
    pub(super) name_servers: Vec<IpAddr>,
    clock: MonotonicClock,
}

/// The thread. It ends when this is dropped.
pub(super) struct Keeper {
    state: Arc<Mutex<State>>,
    is_over: Arc<AtomicBool>,
    waker: RoutingWatchWaker,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Begins to watch.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn start(folder: PathBuf, device: &str, changes: Changes, report: UpkeepReport) -> Result<Self, String> {
        let cannot = |error: io::Error| format!("cannot watch the routes of this host: {error}");
        let mut watch = RoutingWatch::open().map_err(cannot)?;
        // Without the privilege, or without nftables in the kernel, there is no kill switch to watch.
        if let Err(error) = watch.watch_table(TABLE) {
            tracing::debug!(%error, "tables of nftables are not watched");
        }
        let state = Arc::new(Mutex::new(State::new(folder, device, changes)));
        let (is_over, waker) = (Arc::new(AtomicBool::new(false)), watch.waker());
        let (shared, ends) = (Arc::clone(&state), Arc::clone(&is_over));
        #[expect(
            clippy::disallowed_methods,
            reason = "the command is above the engine: one thread that watches the host"
        )]
        let thread = std::thread::spawn(move || keep(&mut watch, &shared, &ends, &report));
        Ok(Self { state, is_over, waker, thread: Some(thread) })
    }

    /// Locks the state. The thread waits meanwhile.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The thread has more to watch.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Ends the thread.
    pub(super) fn end(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep(watch: &mut RoutingWatch, state: &Mutex<State>, is_over: &AtomicBool, report: &UpkeepReport) {
    // All may have changed before the watch began, and while it fails.
    let all = RoutingNews { routing: true, table: true };
    let (mut news, mut has_failed) = (all, false);
    while !is_over.load(Ordering::Acquire) {
        let wait = lock(state).look(news, report);
        news = match watch.wait(StdDuration::from_nanos(wait.as_nanos())) {
            Ok(news) => news,
            Err(error) => {
                if !std::mem::replace(&mut has_failed, true) {
                    report.warn(&format!("changes of the routes of this host are noticed late: {error}"));
                }
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the thread watches the host and has nothing to wait for"
                )]
                std::thread::sleep(PAUSE.into());
                all
            }
        };
    }
}

impl State {
    fn new(folder: PathBuf, device: &str, changes: Changes) -> Self {
        Self {
            folder,
            device: device.to_owned(),
            changes,
            upkeep: Upkeep::default(),
            filter: None,
            name_servers: Vec::new(),
            filter_is_unread: false,
            filter_is_missing: false,
            is_blind: false,
            resolver: None,
            clock: MonotonicClock::start(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Keeps what was made.
    pub(super) fn keep(&mut self, kept: Kept) {
        let now = self.now();
        self.upkeep.keep(kept, now);
    }

    /// Writes how to undo the changes.
    pub(super) fn write(&self) -> Result<(), String> {
        self.changes.write(&self.folder, &self.device)
    }

    /// Makes again what is missing, and returns for how long to wait.
    fn look(&mut self, news: RoutingNews, report: &UpkeepReport) -> Duration {
        self.filter_is_unread |= news.table;
        match Observed::read(MARK) {
            Ok(observed) => {
                self.is_blind = false;
                self.look_at(&observed, report)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_blind, true) {
                    report.warn(&format!(
                        "cannot read the routes of this host: {error}: what is removed is not made again until that is \
                         possible"
                    ));
                }
                PAUSE
            }
        }
    }

    fn look_at(&mut self, observed: &Observed, report: &UpkeepReport) -> Duration {
        let now = self.now();
        self.look_at_filter(observed);
        let filter = if self.filter_is_missing { Presence::Missing } else { Presence::Present };
        let names = self.changes.names.as_ref().map(|names| names.presence(self.resolver.as_ref()));
        let presence = |kept: &Kept| match kept {
            Kept::Filter => filter,
            Kept::Setting(setting) => presence(setting, observed),
            Kept::Names => names.unwrap_or(Presence::Impossible),
        };
        let (due, mut notices) = self.upkeep.look(now, presence);
        for kept in due {
            let outcome = self.make(&kept, observed);
            tracing::info!(setting = %self.words(&kept), ?outcome, "it was missing");
            let now = self.now();
            notices.extend(self.upkeep.handle_outcome(now, &kept, outcome).map(|notice| (kept, notice)));
        }
        // First, so that a reader of the warning finds it in the status. In any case: what is kept
        // may have changed.
        report.set_missing(self.upkeep.missing().map(|(kept, why)| format!("{}: {why}", self.words(kept))).collect());
        for (kept, notice) in &notices {
            report.warn(&self.text(kept, notice));
        }
        let next = self.upkeep.next_look().map_or(WAIT_MAX, |next| next.saturating_since(self.now()));
        if self.changes.names.is_some() { next.min(NAMES_INTERVAL) } else { next }
    }

    fn make(&mut self, kept: &Kept, observed: &Observed) -> Result<(), String> {
        match kept {
            Kept::Filter => self.filter_outside(observed),
            Kept::Setting(setting) => match routing::set(setting) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    Err("another one is in its place".to_owned())
                }
                made => made.map_err(|error| error.to_string()),
            },
            Kept::Names => self.use_name_servers(),
        }
    }

    /// Refuses what leaves outside the tunnel with a packet filter, as the routes are now.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn filter_outside(&mut self, observed: &Observed) -> Result<(), String> {
        let switch = kill_switch(&self.device, observed)?;
        nftables::apply(&switch.script()).map_err(|error| error.to_string())?;
        let shown = nftables::read(TABLE).map_err(|error| error.to_string())?;
        self.filter = Some((switch, shown.unwrap_or_default()));
        self.filter_is_missing = false;
        Ok(())
    }

    /// Looks whether the packet filter is as it was made, and fits it to the routes.
    fn look_at_filter(&mut self, observed: &Observed) {
        let Some((switch, shown)) = &self.filter else { return };
        if std::mem::take(&mut self.filter_is_unread) || self.filter_is_missing {
            // One that cannot be read is made again.
            self.filter_is_missing = !nftables::read(TABLE).is_ok_and(|text| text.as_deref() == Some(shown));
        }
        let is_outdated = kill_switch(&self.device, observed).is_ok_and(|wanted| wanted != *switch);
        // A network that has come is let out, and one that has gone is not. This is no loss, unless it fails.
        if is_outdated && !self.filter_is_missing {
            self.filter_is_missing = self.filter_outside(observed).is_err();
        }
    }

    /// Looks up names at the servers that were asked for.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn use_name_servers(&mut self) -> Result<(), String> {
        let names = NameService::plan(&self.device, &self.name_servers, self.changes.names.as_ref())?;
        if self.changes.names.as_ref() != Some(&names) {
            self.changes.names = Some(names.clone());
            self.write()?;
        }
        names.make(&self.device, &self.name_servers)?;
        self.resolver = Resolver::of_this_host();
        Ok(())
    }

    fn words(&self, kept: &Kept) -> String {
        match kept {
            Kept::Filter => "the packet filter of the kill switch".to_owned(),
            Kept::Setting(setting) => setting.to_string(),
            Kept::Names => format!("the name servers of the tunnel {}", self.device),
        }
    }

    fn text(&self, kept: &Kept, notice: &Notice) -> String {
        let words = self.words(kept);
        match notice {
            Notice::Missing(why) => {
                let open = match kept {
                    Kept::Names => "names may be looked up outside the tunnel",
                    _ if self.changes.filters => {
                        "packets outside the tunnel are refused, as far as the rest is in force"
                    }
                    _ => "packets may leave outside the tunnel",
                };
                format!("another program has removed {words}, which cannot be made again ({why}): {open}")
            }
            Notice::Back => format!("{words}: it is in force again"),
            Notice::Impossible => {
                let owner = if *kept == Kept::Names { "systemd-resolved" } else { &self.device };
                format!("{words}: it is not missed any more, because {owner} is gone")
            }
            Notice::Contested => format!(
                "another program removes {words} again and again; it is made again each time. Let that program leave \
                 {} alone",
                self.device
            ),
        }
    }
}

fn presence(setting: &Setting, observed: &Observed) -> Presence {
    if observed.settings.contains(setting) {
        return Presence::Present;
    }
    match setting.device() {
        Some(device) if !observed.devices.contains(device) => Presence::Impossible,
        _ => Presence::Missing,
    }
}

/// The packet filter for a tunnel, with the networks that are reached outside it.
fn kill_switch(device: &str, observed: &Observed) -> Result<KillSwitch, String> {
    let networks = observed.networks.iter();
    let networks = networks.filter_map(|of| Some((of.device.as_str(), Prefix::new(of.address, of.bits).ok()?)));
    KillSwitch::new(device, MARK, networks).map_err(|_bad| {
        format!("a kill switch needs a device whose name has no quotes, stars or dollars, unlike {device}")
    })
}

/// Refuses a kill switch that this host cannot have, before anything is changed.
///
/// # Errors
/// A message for the user.
pub(super) fn check_kill_switch(device: &str) -> Result<(), String> {
    let switch = kill_switch(device, &Observed::default())?;
    nftables::check(&switch.script()).map_err(|error| {
        let remedy = match error {
            nftables::NftError::Program(_) => "install the package nftables",
            // It is not given to the program here: the user of a command with a capability chooses
            // its PATH.
            nftables::NftError::Refused(_) if !programs_have_net_admin() => {
                "a capability of this command's file is none of the programs that it runs: run it as root, or with the \
                 ambient capability (AmbientCapabilities=CAP_NET_ADMIN of systemd)"
            }
            nftables::NftError::Refused(_) => {
                "use a kernel that has nftables (CONFIG_NF_TABLES_INET, CONFIG_NFT_REJECT)"
            }
        };
        format!(
            "--kill-switch needs nftables to refuse packets, which fails here ({error}): {remedy}, or leave the option out"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_any_more_is_not_listed_as_missing() {
        let report = UpkeepReport::new(false, true);
        let mut state = State::new(PathBuf::new(), "litz7", Changes::default());
        state.keep(Kept::Names);
        for _ in 0..3 {
            let now = state.now();
            state.upkeep.handle_outcome(now, &Kept::Names, Err("no".to_owned()));
        }
        report.set_missing(state.upkeep.missing().map(|(kept, _)| state.words(kept)).collect());
        assert_eq!(report.missing().len(), 1);
        state.upkeep.retain(|_| false);
        state.look(RoutingNews::default(), &report);
        assert_eq!(report.missing(), [""; 0]);
    }
}
