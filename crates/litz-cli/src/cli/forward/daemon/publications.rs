//! Places of the far host where programs of this one have it listen. Each is a listener of the server on a stream
//! of its own, as long as its program wants it.
//!
//! ```text
//!  program ── Publish ──▶ Listen, on a stream ──────────▶ the server listens
//!          ◀─ Published ─ Listening ◀────────────────────
//!          ◀─ Arrived ─── Arrived, on another stream ◀─── a far program connects
//!          ── Carry ────▶ Connected ────────────────────▶
//! ```

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forward::address::Protocol;
use forward::daemon::{Reply, SocketFrom};
use forward::message::{Failure, Message, Reason};
use forward::spec::Listen;
use forwarding::carry::{Carried, RESET};
use forwarding::events::{Events, Label};
use forwarding::frames;
use forwarding::session::{OtherRequests, Session, Streams};
use serde_json::json;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::timeout;

use super::attached::{Answered, AttachedProgram, cancelled_by_program, ended, other};
use super::program_end::ProgramEnd;
use crate::cli::forward::own::Own;
use crate::cli::forward::report::Report;

/// Publications of a program.
const PUBLISHED_MAX: usize = 16;

/// Arrivals at a publication that wait for the program, as in the queue of a listening socket. Further ones wait
/// in the daemon for [`QUEUE_TIME`].
const ARRIVALS_WAITING_MAX: usize = 64;

/// The time that an arrival waits until it can be told to the program. With the time that the program has then, it
/// is less than the far host waits for an answer ([`ANSWER`](frames::ANSWER)).
const QUEUE_TIME: Duration = Duration::from_secs(10);

/// The time that a place has to become free, if a program that has it ends.
const CONFLICT_TIME: Duration = Duration::from_secs(5);

/// The pause before the server is asked again to listen, after it has refused that or has ended it.
const AGAIN_INTERVAL: Duration = Duration::from_secs(1);

/// The number of the first publication for the server. Those below it are of `-R`.
const FIRST_ID: u32 = 1 << 16;

/// The publications of all programs.
pub(super) struct Publications {
    table: Mutex<Table>,
    /// One has ended.
    has_ended: Notify,
}

struct Table {
    next: u32,
    /// By the number for the server: from the request of the program until the server has closed the listener.
    by_id: BTreeMap<u32, Arc<Publication>>,
}

/// A publication of a program.
struct Publication {
    attached: Arc<AttachedProgram>,
    report: Arc<Report>,
    /// The program's number for it.
    number: u32,
    /// Where the sockets for arrivals come from.
    from: SocketFrom,
    /// Where to listen, as the program says.
    listen: Listen,
    /// For arrivals that wait for the program.
    waiting: Semaphore,
}

/// Keeps the server listening.
struct Keeper {
    publications: Arc<Publications>,
    publication: Arc<Publication>,
    own: Arc<Own>,
    id: u32,
}

impl Publications {
    pub(super) fn new() -> Self {
        let table = Table { next: FIRST_ID, by_id: BTreeMap::new() };
        Self { table: Mutex::new(table), has_ended: Notify::new() }
    }

    /// Begins a publication.
    ///
    /// # Errors
    /// As of [`AttachedProgram::connect`].
    pub(super) async fn publish(
        self: &Arc<Self>,
        own: &Arc<Own>,
        report: &Arc<Report>,
        attached: &Arc<AttachedProgram>,
        number: u32,
        from: SocketFrom,
        listen: Listen,
    ) -> io::Result<()> {
        let Some(cancelled) = attached.begin(number).await? else { return Ok(()) };
        let waiting = Semaphore::new(ARRIVALS_WAITING_MAX);
        let (attached, report) = (Arc::clone(attached), Arc::clone(report));
        let publication = Arc::new(Publication { attached, report, number, from, listen, waiting });
        match self.add(&publication) {
            Ok(id) => {
                let keeper = Keeper { publications: Arc::clone(self), publication, own: Arc::clone(own), id };
                tokio::spawn(async move { keeper.run(cancelled).await });
            }
            Err(failure) => publication.attached.end(number, &Reply::Failed { number, failure }).await,
        }
        Ok(())
    }

    /// The places of a program, for the user.
    pub(super) fn of(&self, attached: &Arc<AttachedProgram>) -> Vec<String> {
        let table = self.table();
        let own = table.by_id.values().filter(|publication| Arc::ptr_eq(&publication.attached, attached));
        own.map(|publication| publication.listen.to_string()).collect()
    }

    fn add(&self, publication: &Arc<Publication>) -> Result<u32, Failure> {
        if let Listen::Port { protocol: Protocol::Udp, .. } = publication.listen {
            return Err(Failure::new(Reason::Unknown, "UDP is not published: use `litz forward -R`"));
        }
        let mut table = self.table();
        let is_its = |other: &&Arc<Publication>| Arc::ptr_eq(&other.attached, &publication.attached);
        if table.by_id.values().filter(is_its).count() >= PUBLISHED_MAX {
            return Err(Failure::new(Reason::Busy, &format!("a program publishes at most {PUBLISHED_MAX} places")));
        }
        while table.by_id.contains_key(&table.next) {
            table.advance();
        }
        let id = table.next;
        table.advance();
        table.by_id.insert(id, Arc::clone(publication));
        Ok(id)
    }

    fn remove(&self, id: u32) {
        self.table().by_id.remove(&id);
        self.has_ended.notify_waiters();
    }

    /// Waits until no earlier publication has the same place: the program of that one may just have ended.
    async fn wait_for_place(&self, id: u32, listen: &Listen) -> Result<(), Failure> {
        let is_free = async {
            loop {
                let has_ended = self.has_ended.notified();
                if self.holder(id, listen).is_none() {
                    return;
                }
                has_ended.await;
            }
        };
        match (timeout(CONFLICT_TIME, is_free).await, self.holder(id, listen)) {
            (Err(_late), Some(holder)) => {
                Err(Failure::new(Reason::Busy, &format!("{holder} publishes {listen} already")))
            }
            _ => Ok(()),
        }
    }

    /// The program that had this place before.
    fn holder(&self, id: u32, listen: &Listen) -> Option<String> {
        // Any free port is another one each time.
        if let Listen::Port { port: 0, .. } = listen {
            return None;
        }
        let table = self.table();
        let mut earlier = table.by_id.range(..id).map(|(_, publication)| publication);
        earlier.find(|earlier| earlier.listen == *listen).map(|earlier| earlier.attached.shown())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn advance(&mut self) {
        self.next = self.next.checked_add(1).unwrap_or(FIRST_ID);
    }
}

impl OtherRequests for Publications {
    fn take(self: Arc<Self>, session: &Arc<Session>, request: Message, streams: Streams) -> Option<(Message, Streams)> {
        let Message::Arrived { id, origin } = request else { return Some((request, streams)) };
        let publication = self.table().by_id.get(&id).cloned();
        let Some(publication) = publication else { return Some((request, streams)) };
        let peer = session.peer.clone();
        tokio::spawn(async move { publication.answer(&peer, origin, streams).await });
        None
    }
}

impl Keeper {
    async fn run(self, cancelled: oneshot::Receiver<Answered>) {
        let mut streams = None;
        let failure = tokio::select! {
            failure = self.keep(&mut streams) => failure,
            // Also by a socket, for which a publication has no use.
            _cancelled = cancelled => cancelled_by_program(),
        };
        if let Some((mut send, mut recv)) = streams {
            // It fails only if the connection has ended. The end of the other direction says that the port is free.
            let _over = send.finish();
            let closed = async { while frames::read(&mut recv).await.is_ok() {} };
            let _in_time = timeout(frames::PROMPT, closed).await;
        }
        self.publications.remove(self.id);
        let number = self.publication.number;
        self.publication.attached.end(number, &Reply::Failed { number, failure }).await;
    }

    /// Lets the server listen, and again after a connection to it is lost. Returns why the program has no
    /// publication. The streams are those of the listener, if there may be one.
    async fn keep(&self, streams: &mut Option<Streams>) -> Failure {
        let Publication { attached, listen, report, number, .. } = &*self.publication;
        if let Err(failure) = self.publications.wait_for_place(self.id, listen).await {
            return failure;
        }
        let mut session = match self.own.sessions.get().await {
            Ok(session) => session,
            Err(why) => return Failure::new(Reason::NetworkUnreachable, &why.to_string()),
        };
        let (mut published, mut told): (Option<Listen>, Option<Failure>) = (None, None);
        loop {
            // The port that the system chose stays the same.
            let place = published.as_ref().unwrap_or(listen).clone();
            match self.listen(&session, place, streams).await {
                Ok(listening) => {
                    self.tell(&listening);
                    if published.is_none() {
                        let reply = Reply::Published { number: *number, listen: listening.clone() };
                        if let Err(error) = attached.reply(&reply, &[]).await {
                            return other(&error);
                        }
                    }
                    (published, told) = (Some(listening), None);
                    if let Some((_, recv)) = streams {
                        // Nothing but the end is expected.
                        let _end = frames::read(recv).await;
                    }
                }
                Err(failure) if published.is_none() => return failure,
                // The server may be a new one, or still be busy with the connection before.
                Err(failure) if told.as_ref() != Some(&failure) => {
                    let event = json!({
                        "event": "refused", "from": attached.shown(), "target": listen.to_string(),
                        "reason": failure.reason.name(), "message": failure.to_string(),
                    });
                    report.fail(&event, &format!("{listen} is not published any more: {failure}; trying again"));
                    told = Some(failure);
                }
                Err(_) => {}
            }
            *streams = None;
            let Some(next) = self.own.sessions.next(&session, AGAIN_INTERVAL).await else {
                let why = self.own.sessions.get().await.err().map(|why| why.to_string());
                return Failure::new(Reason::NetworkUnreachable, why.as_deref().unwrap_or("the daemon ends"));
            };
            session = next;
        }
    }

    /// Asks the server to listen.
    async fn listen(
        &self,
        session: &Session,
        listen: Listen,
        streams: &mut Option<Streams>,
    ) -> Result<Listen, Failure> {
        let opened = session.open(&Message::Listen { id: self.id, listen }).await;
        let opened = opened.map_err(|error| Failure::new(Reason::NetworkUnreachable, &error.to_string()))?;
        frames::listening(&mut streams.insert(opened).1, self.id).await
    }

    fn tell(&self, listening: &Listen) {
        let program = self.publication.attached.shown();
        let event = json!({
            "event": "forwarding", "kind": "published", "listen": listening.to_string(), "target": program,
            "port": if let Listen::Port { port, .. } = listening { Some(port) } else { None },
        });
        self.publication.report.tell(&event, &format!("{listening} of the server leads to {program}"));
    }
}

impl Publication {
    /// Answers an arrival, and carries its data.
    async fn answer(&self, peer: &str, origin: Option<SocketAddr>, (mut send, mut recv): Streams) {
        let from = origin.map_or_else(|| peer.to_owned(), |origin| origin.to_string());
        let label = self.report.label(&from, &format_args!("{} of {}", self.listen, self.attached.shown()));
        let (number, answer) = match self.attached.begin_arrival() {
            Ok(begun) => begun,
            Err(failure) => return self.refuse(&label, failure, (send, recv)).await,
        };
        let end = tokio::select! {
            end = self.program_end(number, origin, answer) => end,
            // The far program does not want it any more.
            _ = send.stopped_async() => Err(Failure::new(Reason::Other, "given up by the other side")),
        };
        let last = match end {
            Ok(end) => {
                let (connected, carried) = (Message::Connected { local: end.local_addr() }, Carried::default());
                let result = match frames::send(&mut send, &connected).await {
                    Ok(()) => {
                        let streams = (send, recv);
                        self.attached.carry_data(&self.report, &label, end, streams, &carried).await
                    }
                    Err(error) => {
                        recv.stop(RESET);
                        Err(other(&error))
                    }
                };
                ended(number, carried, result)
            }
            Err(failure) => {
                self.refuse(&label, failure.clone(), (send, recv)).await;
                Reply::Failed { number, failure }
            }
        };
        self.attached.end(number, &last).await;
    }

    /// This end of the connection with the program for an arrival.
    async fn program_end(
        &self,
        number: u32,
        origin: Option<SocketAddr>,
        answer: oneshot::Receiver<Answered>,
    ) -> Result<ProgramEnd, Failure> {
        let Ok(Ok(_waits)) = timeout(QUEUE_TIME, self.waiting.acquire()).await else {
            let detail = format!("{ARRIVALS_WAITING_MAX} connections wait for the program already");
            return Err(Failure::new(Reason::Busy, &detail));
        };
        let arrived = Reply::Arrived { publication: self.number, number, origin };
        self.attached.program_end(&arrived, self.attached.reserve(self.from)?, answer).await
    }

    /// Tells the other side and the user why an arrival is not connected.
    async fn refuse(&self, label: &Label, failure: Failure, (mut send, mut recv): Streams) {
        self.report.refused(label, failure.reason.name(), &failure.to_string());
        // Where that fails, the connection has ended.
        let _over = frames::send(&mut send, &Message::Failed(failure)).await;
        let _over = send.finish();
        recv.stop(RESET);
    }
}
