//! One transfer of the demo: a receiver, a sender, and the emulated links between them.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};

use emulate::{LinkReport, Relay};
use net::MonotonicClock;
use serde_json::Value;
use transfer::CancelToken;
use units::{Duration, Instant, Rate};

use super::child::{Child, EVENTS_MAX, Output, Role, number};
use super::cut::{Cut, LinkChange};
use super::failure::Failure;
use super::files;
use super::links::DemoLink;
use super::machine::{Ticks, processor_time};
use super::show::{Screen, Show};
use crate::cli::exit;

/// An Ethernet MTU minus the headers of a tunnel. Loopback carries it; not every real path does.
const DATAGRAM_SIZE: usize = 1452;

/// How often to check for an interrupt.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The settings that all transfers of a demo share.
pub(super) struct Setup<'a> {
    pub(super) folder: &'a Path,
    pub(super) seed: u64,
    pub(super) clock: MonotonicClock,
    pub(super) cancel: &'a CancelToken,
    pub(super) show: &'a Show,
}

/// The result of a transfer.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) bytes: u64,
    /// From the end of the handshake to the last byte at the receiving application.
    pub(super) span: Duration,
    /// The longest time without data for that application, between its first byte and its last.
    pub(super) longest_gap: Duration,
    pub(super) handshake: Duration,
    pub(super) cipher: String,
    pub(super) key_exchange: String,
    pub(super) packets_sent: u64,
    pub(super) packets_lost: u64,
    /// Bytes acknowledged on each link.
    pub(super) link_bytes: Vec<u64>,
    pub(super) links: Vec<LinkReport>,
    pub(super) cut: Option<Cut>,
    /// How long the link was cut during the transfer.
    pub(super) down: Duration,
    /// Duration of the handshake.
    pub(super) connected_at: Instant,
    /// Load of this machine's processors during the transfer; none if the system does not provide
    /// it.
    pub(super) busy_percent: Option<u64>,
    /// Processor time of the emulator and of both processes, from their start to their end.
    pub(super) processor_time: Duration,
}

impl Outcome {
    /// The file's bytes divided by the transfer's time.
    pub(super) fn goodput(&self) -> Rate {
        Rate::from_transfer(self.bytes, self.span).unwrap_or_default()
    }
}

/// The sent and the received file. Dropping it removes them.
pub(super) struct Files {
    pub(super) sent: PathBuf,
    pub(super) received: PathBuf,
    _folder: tempfile::TempDir,
}

impl Setup<'_> {
    /// Sends `bytes` over `links` together, under the title `title`.
    ///
    /// # Errors
    /// [`Failure`]: the error of a process, or an interrupt.
    pub(super) fn transfer(
        &self,
        title: &str,
        links: &[DemoLink],
        bytes: u64,
        cut: Option<Cut>,
    ) -> Result<(Outcome, Files), Failure> {
        let to_message = |error: std::io::Error| format!("cannot prepare files in {}: {error}", self.folder.display());
        let folder = tempfile::tempdir_in(self.folder).map_err(to_message)?;
        let (sent, inbox) = (folder.path().join("file.bin"), folder.path().join("received"));
        std::fs::create_dir(&inbox).map_err(to_message)?;
        files::make(&sent, bytes, self.seed).map_err(to_message)?;
        let time_before = processor_time();
        let relay = Relay::start(links.iter().map(DemoLink::relay_link).collect(), self.seed)
            .map_err(|error| format!("cannot start the emulated links: {error}"))?;
        let (output, events) = mpsc::sync_channel(EVENTS_MAX);
        let mut run = Run {
            setup: self,
            screen: self.show.transfer(title, bytes),
            relay,
            links,
            events,
            last_byte: None,
            percent: 0,
            ticks: None,
            outcome: Outcome { bytes, cut, link_bytes: vec![0; links.len()], ..Outcome::default() },
        };
        let (mut receiver, ticket) = run.start_receiver(&inbox, output.clone())?;
        let mut sender = run.start_sender(&sent, &ticket, output)?;
        run.watch(&mut receiver, &mut sender)?;
        let mut outcome = run.conclude()?;
        outcome.processor_time = processor_time().saturating_sub(time_before);
        Ok((outcome, Files { received: inbox.join("file.bin"), sent, _folder: folder }))
    }
}

/// A running transfer.
struct Run<'a> {
    setup: &'a Setup<'a>,
    screen: Screen,
    relay: Relay,
    links: &'a [DemoLink],
    events: Receiver<(Role, Output)>,
    /// When the receiving application got its last byte, since it accepted the connection.
    last_byte: Option<Duration>,
    /// Share of the file that has been received.
    percent: u64,
    /// Processor time at the end of the handshake.
    ticks: Option<Ticks>,
    outcome: Outcome,
}

impl Run<'_> {
    /// Starts a receiver behind all links; returns its ticket too.
    fn start_receiver(&mut self, inbox: &Path, output: SyncSender<(Role, Output)>) -> Result<(Child, String), Failure> {
        let arguments = [
            OsString::from("recv"),
            inbox.into(),
            "--json".into(),
            "--listen=127.0.0.1:0".into(),
            format!("--advertise={}", self.relay.local_addr(0)).into(),
            self.state_dir("receiver").into(),
        ];
        let receiver = Child::start(Role::Receiver, &arguments, output)?;
        let listening = loop {
            match self.next(None)? {
                Some((_, Output::Event(event))) if event["event"] == "listening" => break event,
                Some((_, Output::Event(event))) => self.refuse_error(&event)?,
                Some(_) => return Err("the receiver ended before it listened on its port".to_owned().into()),
                None => {}
            }
        };
        let port = listening["port"].as_u64().and_then(|port| u16::try_from(port).ok()).ok_or("no port")?;
        let ticket = listening["ticket"].as_str().ok_or("no ticket")?.to_owned();
        for link in 0..self.links.len() {
            self.relay
                .set_server(link, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
                .map_err(|error| error.to_string())?;
        }
        Ok((receiver, ticket))
    }

    /// Starts a sender with a path over each link.
    fn start_sender(&self, file: &Path, ticket: &str, output: SyncSender<(Role, Output)>) -> Result<Child, Failure> {
        let mut arguments = vec![
            OsString::from("send"),
            file.into(),
            ticket.into(),
            "--json".into(),
            // A lost connection ends the demo, which shows outages of single links only.
            "--retry-for=0s".into(),
            format!("--datagram-size={DATAGRAM_SIZE}").into(),
            self.state_dir("sender").into(),
        ];
        let paths = (0..self.links.len()).map(|link| format!("--path=127.0.0.1-{}", self.relay.local_addr(link)));
        arguments.extend(paths.map(OsString::from));
        Ok(Child::start(Role::Sender, &arguments, output)?)
    }

    fn state_dir(&self, whose: &str) -> String {
        format!("--state-dir={}", self.setup.folder.join(whose).display())
    }

    /// The next event; none after `deadline` or the interval at which to check for interrupts.
    fn next(&self, deadline: Option<Instant>) -> Result<Option<(Role, Output)>, Failure> {
        if self.setup.cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        let left = deadline.map_or(LOOK_INTERVAL, |at| at.saturating_since(self.setup.clock.now()));
        match self.events.recv_timeout(left.min(LOOK_INTERVAL).into()) {
            Ok((_, Output::Unreadable(reason))) => Err(reason.into()),
            Ok(output) => Ok(Some(output)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err("both processes ended without a result".to_owned().into()),
        }
    }

    /// Follows the transfer and makes the outage, until both processes have succeeded.
    fn watch(&mut self, receiver: &mut Child, sender: &mut Child) -> Result<(), Failure> {
        let mut running = 2;
        while running > 0 {
            self.drive_cut()?;
            let deadline = self.outcome.cut.as_ref().and_then(Cut::poll_timeout);
            match self.next(deadline)? {
                Some((role, Output::Event(event))) => self.note(role, &event)?,
                Some((role, Output::Closed)) => {
                    running -= 1;
                    let status = if role == Role::Sender { sender.wait()? } else { receiver.wait()? };
                    if status != 0 {
                        return Err(format!("the {} ended with status {status}", role.name()).into());
                    }
                }
                // `next` has returned it as an error.
                Some((_, Output::Unreadable(_))) | None => {}
            }
        }
        Ok(())
    }

    fn drive_cut(&mut self) -> Result<(), Failure> {
        let Some(cut) = &mut self.outcome.cut else { return Ok(()) };
        let (running, link) = (self.relay.running(), cut.link);
        let name = &self.links[link].name;
        match cut.poll(self.setup.clock.now(), self.percent) {
            Some(LinkChange::Cut) => {
                running.cut(link).map_err(|error| error.to_string())?;
                self.screen.say(&format!("  ✂ {name} is cut, silently in both directions: {} % received", cut.percent));
            }
            Some(LinkChange::Restore) => {
                running.restore(link).map_err(|error| error.to_string())?;
                self.screen.say(&format!("  ✔ {name} is restored: {} % received", self.percent));
            }
            None => {}
        }
        Ok(())
    }

    fn note(&mut self, role: Role, event: &Value) -> Result<(), Failure> {
        self.refuse_error(event)?;
        let micros = |key: &str| Duration::from_micros(number(event, key));
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let outcome = &mut self.outcome;
        match (role, event["event"].as_str().unwrap_or_default()) {
            (Role::Sender, "connected") => {
                if self.links.len() > 1 && event["multipath"] != true {
                    return Err("the connection supports one path only".to_owned().into());
                }
                outcome.connected_at = self.setup.clock.now();
                self.ticks = Ticks::read();
                outcome.handshake = micros("handshake_us");
                (outcome.cipher, outcome.key_exchange) = (text("cipher"), text("key_exchange"));
            }
            (Role::Receiver, "progress") => {
                let done = number(event, "bytes_done");
                self.percent = done.saturating_mul(100).checked_div(outcome.bytes).unwrap_or(100);
                self.screen.progress(done);
                // Not at the end: the time after the last byte is the disk's.
                if let (Some(before), Some(now)) = (self.ticks, Ticks::read()) {
                    outcome.busy_percent = now.busy_percent_since(before);
                }
            }
            (Role::Sender, "paths") => {
                let lines = self.path_lines(event);
                self.screen.links(self.setup.clock.now(), &lines);
            }
            (Role::Sender, "stats") => {
                outcome.packets_sent = number(event, "packets_sent");
                outcome.packets_lost = number(event, "packets_lost");
                for path in event["paths"].as_array().into_iter().flatten() {
                    if let Some(link) = self.link_of(path) {
                        self.outcome.link_bytes[link] += number(path, "bytes_acked");
                    }
                }
            }
            (Role::Receiver, "stats") => {
                outcome.longest_gap = micros("longest_gap_us");
                self.last_byte = Some(micros("last_byte_us"));
            }
            _ => {}
        }
        Ok(())
    }

    /// The link that a path uses.
    fn link_of(&self, path: &Value) -> Option<usize> {
        let remote: SocketAddr = path["remote"].as_str()?.parse().ok()?;
        (0..self.links.len()).find(|&link| self.relay.local_addr(link) == remote)
    }

    /// One line per link with a path.
    fn path_lines(&self, event: &Value) -> Vec<String> {
        let paths = event["paths"].as_array().into_iter().flatten();
        let lines = paths.filter_map(|path| {
            let name = &self.links[self.link_of(path)?].name;
            let (rate, trip) = (number(path, "rate_bps"), number(path, "round_trip_us"));
            Some(format!(
                "{name:<10} {:<10} {:>11}, round trip {}, {:.2} % lost",
                path["state"].as_str().unwrap_or_default(),
                Rate::from_bps(rate).to_string(),
                Duration::from_micros(trip),
                path["loss_percent"].as_f64().unwrap_or(0.0)
            ))
        });
        lines.collect()
    }

    fn refuse_error(&self, event: &Value) -> Result<(), Failure> {
        if event["event"] != "error" {
            return Ok(());
        }
        // Ctrl-C in a terminal signals all processes, and a child may report it first.
        if self.setup.cancel.is_cancelled() || number(event, "status") == u64::from(exit::INTERRUPTED) {
            return Err(Failure::Interrupted);
        }
        Err(event["message"].as_str().unwrap_or("litz failed").to_owned().into())
    }

    fn conclude(self) -> Result<Outcome, Failure> {
        let Self { relay, mut outcome, last_byte, .. } = self;
        let ended = relay.stop();
        if let Some((link, error)) = ended.fault {
            return Err(format!("link {} stopped: {error}", ended.reports[link].name).into());
        }
        outcome.span = last_byte.ok_or("the receiver did not report when it got the last byte")?;
        let (start, end) = (outcome.connected_at, outcome.connected_at + outcome.span);
        outcome.down = outcome.cut.as_ref().map_or(Duration::ZERO, |cut| cut.down_between(start, end));
        outcome.links = ended.reports;
        Ok(outcome)
    }
}
