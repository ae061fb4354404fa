//! Follows the links of this host while a command runs. A socket whose device was made again is
//! opened again, one whose device cannot carry packets is switched off at once, and a sender gets
//! paths over links that appear.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use litz::paths::follow::{LinkAction, LinkFollower};
use litz::{Interface, SocketSwitch, UdpSocket, UdpSocketOptions};
use net::{LinkNews, LinkWatch, LinkWatchWaker};
use quic_endpoint::local_ends::LocalEnds;
use serde_json::{Value, json};

use super::out;

/// Without a change of the links, the thread tries after this time to open a socket that could not
/// be opened at once: an IPv6 address is usable only after duplicate address detection.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The shortest and the longest time between two looks at paths that are not settled. Each look
/// doubles it.
const LOOK_INTERVALS: [Duration; 2] = [Duration::from_millis(25), Duration::from_secs(1)];

/// The user is told that a socket cannot be opened after this many attempts: two seconds.
const FAILURES_UNTIL_TOLD: u32 = 10;

/// The longest wait for a change.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Events that wait to be shown, at most; further ones are dropped.
const EVENTS_MAX: usize = 64;

/// A socket that may be bound to a device.
pub(crate) struct BoundSocket {
    /// Its index in the endpoint.
    place: usize,
    /// The options it was opened with, and its port.
    options: UdpSocketOptions,
    switch: SocketSwitch,
    /// How often in a row it could not be opened again.
    failures: u32,
}

impl BoundSocket {
    /// The socket with the index `place` in the endpoint.
    pub(crate) fn new(place: usize, options: UdpSocketOptions, switch: SocketSwitch) -> Self {
        Self { place, options, switch, failures: 0 }
    }
}

/// Changes of a connection's paths, after a look at the links.
#[derive(Default)]
pub(crate) struct PathChanges {
    /// Sockets that were bound, each with what to tell the user.
    pub(crate) bound: Vec<(BoundSocket, LinkEvent)>,
    /// Sockets that are not used any more.
    pub(crate) released: Vec<usize>,
    /// Whether to look again soon, although no link changes.
    pub(crate) is_unsettled: bool,
}

/// A link of this host has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkEvent {
    pub(crate) device: String,
    pub(crate) address: String,
    pub(crate) is_usable: bool,
    pub(crate) message: String,
}

impl LinkEvent {
    /// The text for the user.
    pub(crate) fn text(&self) -> String {
        format!("{} ({}): {}", self.device, self.address, self.message)
    }

    /// The JSON event.
    pub(crate) fn json(&self) -> Value {
        json!({
            "event": "link", "device": self.device, "address": self.address, "usable": self.is_usable,
            "message": self.message,
        })
    }
}

/// The links of this host before a command opens its sockets. Later changes are not missed.
pub(crate) struct LinkBaseline {
    watch: Option<LinkWatch>,
    interfaces: Vec<Interface>,
}

impl LinkBaseline {
    pub(crate) fn take() -> Self {
        let watch = match LinkWatch::open() {
            Ok((watch, refused)) => {
                if let Some(error) = refused {
                    tracing::warn!(%error, "the system does not report changes of links: looking at them regularly");
                }
                Some(watch)
            }
            Err(error) => {
                tracing::warn!(%error, "changes of links are not followed");
                None
            }
        };
        // An index that is not known is learned from the first table that can be read.
        Self { watch, interfaces: net::interfaces().unwrap_or_default() }
    }
}

/// The thread that follows the links. It ends when this is dropped.
pub(crate) struct Links {
    stop: Option<LinkWatchWaker>,
    events: Mutex<mpsc::Receiver<LinkEvent>>,
    ends: Arc<LocalEnds>,
    thread: Option<JoinHandle<()>>,
}

impl Links {
    /// Follows the links of `sockets`, which were opened after `baseline` was taken; those without a
    /// device need nothing. `on_look` gets the table of interfaces after each change, and again while
    /// it says that the paths are not settled.
    pub(crate) fn follow(
        baseline: LinkBaseline,
        sockets: Vec<BoundSocket>,
        on_look: impl FnMut(&[Interface]) -> PathChanges + Send + 'static,
    ) -> Self {
        let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
        let ends = Arc::<LocalEnds>::default();
        let mut follower =
            Follower { state: LinkFollower::new(), sockets: Vec::new(), events: sender, ends: Arc::clone(&ends) };
        sockets.into_iter().for_each(|socket| follower.add(socket, &baseline.interfaces));
        let events = Mutex::new(events);
        let Some(watch) = baseline.watch else { return Self { stop: None, events, ends, thread: None } };
        let stop = Some(watch.waker());
        #[expect(clippy::disallowed_methods, reason = "the command is above the engine: one thread for the links")]
        let thread = std::thread::spawn(move || follower.run(watch, on_look));
        Self { stop, events, ends, thread: Some(thread) }
    }

    /// The devices and addresses that the sockets are bound to.
    pub(crate) fn ends(&self) -> &Arc<LocalEnds> {
        &self.ends
    }

    /// Prints what has happened since the last call, for a command without a progress display.
    pub(crate) fn tell(&self, json: bool, quiet: bool) {
        for event in self.take_events() {
            if json {
                out::json(&event.json());
            } else if !quiet {
                out::note(&event.text());
            }
        }
    }

    /// What has happened since the last call.
    pub(crate) fn take_events(&self) -> Vec<LinkEvent> {
        // A thread that panicked while it read has left the queue as it is.
        self.events.lock().unwrap_or_else(PoisonError::into_inner).try_iter().collect()
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.stop.iter().for_each(LinkWatchWaker::wake);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

struct Follower {
    state: LinkFollower,
    /// In the order of their numbers.
    sockets: Vec<BoundSocket>,
    events: mpsc::SyncSender<LinkEvent>,
    ends: Arc<LocalEnds>,
}

impl Follower {
    /// Follows a socket, in place of the one that was in its place before.
    fn add(&mut self, socket: BoundSocket, interfaces: &[Interface]) {
        let ip = socket.options.bind.ip();
        self.ends.bind(socket.place, socket.options.device.clone(), ip);
        let Some(device) = socket.options.device.clone() else { return };
        let index = interfaces.iter().find(|interface| interface.name == device).map_or(0, |found| found.index);
        match self.sockets.iter().position(|known| known.place == socket.place) {
            Some(number) => {
                self.state.replace(number, &device, ip, index);
                self.sockets[number] = socket;
            }
            None => {
                self.state.add(&device, ip, index);
                self.sockets.push(socket);
            }
        }
    }

    fn run(mut self, mut watch: LinkWatch, mut on_look: impl FnMut(&[Interface]) -> PathChanges) {
        let (mut is_incomplete, mut is_unread, mut look_after) = (false, false, None::<Duration>);
        loop {
            let retry = (is_incomplete || is_unread).then_some(RETRY_INTERVAL);
            let news = match watch.wait(retry.into_iter().chain(look_after).min().unwrap_or(WAIT_MAX)) {
                Ok(LinkNews::Woken) => return,
                Ok(news) => news,
                Err(error) => return tracing::error!(%error, "changes of links are not followed any more"),
            };
            is_unread |= news == LinkNews::MayHaveChanged;
            let interfaces = match net::interfaces() {
                Ok(interfaces) => interfaces,
                Err(error) => {
                    tracing::warn!(%error, "the links cannot be read");
                    continue;
                }
            };
            let has_changed = std::mem::take(&mut is_unread);
            is_incomplete = self.apply(&interfaces);
            if !has_changed && look_after.is_none() {
                continue;
            }
            let changes = on_look(&interfaces);
            let [shortest, longest] = LOOK_INTERVALS;
            let has_steps = has_changed || !changes.bound.is_empty() || !changes.released.is_empty();
            let next = look_after.filter(|_| !has_steps).map_or(shortest, |last| (last * 2).min(longest));
            look_after = changes.is_unsettled.then_some(next);
            for place in changes.released {
                self.release(place);
            }
            for (socket, event) in changes.bound {
                self.add(socket, &interfaces);
                self.tell(event);
            }
        }
    }

    /// Stops to follow the socket in a place, whose path was abandoned.
    fn release(&mut self, place: usize) {
        if let Some(number) = self.sockets.iter().position(|known| known.place == place) {
            self.state.remove(number);
        }
    }

    /// Does what the state of the links requires; true if a socket could not be opened.
    fn apply(&mut self, interfaces: &[Interface]) -> bool {
        let mut is_incomplete = false;
        for action in self.state.on_interfaces(interfaces) {
            match action {
                LinkAction::Reopen { socket, index } => is_incomplete |= !self.reopen(socket, index),
                LinkAction::SwitchOff { socket, reason } => {
                    self.sockets[socket].switch.switch_off(&reason.to_string());
                    self.ends.set_down(self.sockets[socket].place, Some(reason));
                    self.tell_of(socket, false, format!("{reason}; it is used again when it is back"));
                }
                LinkAction::SwitchOn { socket } => {
                    self.sockets[socket].switch.switch_on();
                    self.ends.set_down(self.sockets[socket].place, None);
                    self.tell_of(socket, true, "the link is back".to_owned());
                }
            }
        }
        is_incomplete
    }

    /// Opens a socket again on a device that was made again; false if it has to be tried once more.
    fn reopen(&mut self, socket: usize, index: u32) -> bool {
        let bound = &mut self.sockets[socket];
        // A link-local address names its device by the index.
        if let SocketAddr::V6(address) = &mut bound.options.bind
            && address.scope_id() != 0
        {
            address.set_scope_id(index);
        }
        match UdpSocket::open(&bound.options) {
            Ok(opened) => {
                bound.switch.replace(opened);
                bound.failures = 0;
                self.ends.set_down(bound.place, None);
                self.state.on_reopened(socket, index);
                self.tell_of(socket, true, "the device was made again and is used again".to_owned());
                true
            }
            Err(error) => {
                bound.failures += 1;
                if bound.failures == FAILURES_UNTIL_TOLD {
                    self.tell_of(socket, false, format!("{error}; trying again"));
                }
                false
            }
        }
    }

    fn tell_of(&self, socket: usize, is_usable: bool, message: String) {
        let options = &self.sockets[socket].options;
        let device = options.device.clone().unwrap_or_default();
        self.tell(LinkEvent { device, address: options.bind.ip().to_string(), is_usable, message });
    }

    fn tell(&self, event: LinkEvent) {
        // The queue is full only if the links change faster than the command prints.
        let _dropped = self.events.try_send(event);
    }
}
