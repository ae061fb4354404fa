//! The listeners of one client on the server's host: those that it asks for on its control stream, which last as
//! long as its connection, and those that last as long as a stream of their own.

use std::sync::Arc;

use super::carry::RESET;
use super::frames;
use forward::message::{Failure, Message, Reason};
use forward::policy::Policy;
use forward::spec::Listen;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::listener::{Bound, Way, places};
use super::session::{OtherRequests, Session, Streams};
use super::sessions::Sessions;

/// Listeners of one client.
const LISTENERS_MAX: usize = 64;

/// Opens listeners as far as the rules of the server allow it.
pub struct Listeners {
    policy: Arc<Policy>,
    /// Each listener has one of them until its ports are free.
    free: Arc<Semaphore>,
    /// For what arrives at any of them.
    places: Arc<Semaphore>,
}

/// An open listener. It accepts nothing more when this is dropped.
pub struct OpenListener {
    /// Where it listens, with the port that the system chose.
    pub listen: Listen,
    tasks: JoinSet<()>,
    _place: OwnedSemaphorePermit,
}

impl Listeners {
    /// Creates the listeners of a connection, none of which is open yet.
    pub fn new(policy: Arc<Policy>) -> Self {
        Self { policy, free: Arc::new(Semaphore::new(LISTENERS_MAX)), places: places() }
    }

    /// Opens a listener, whose number is `id` for the client.
    ///
    /// # Errors
    /// If the rules do not allow it, the client has 64 listeners, or the system refuses it: for the client. The session's
    /// [`Events`](super::events::Events) take it, too.
    pub fn open(&self, session: &Arc<Session>, id: u32, listen: &Listen) -> Result<OpenListener, Failure> {
        self.try_open(session, id, listen).inspect_err(|failure| {
            let label = session.events.label(&session.peer, &format!("listening on {listen}"));
            session.events.refused(&label, failure.reason.name(), failure.detail());
        })
    }

    fn try_open(&self, session: &Arc<Session>, id: u32, listen: &Listen) -> Result<OpenListener, Failure> {
        if !self.policy.allows_listening(listen) {
            let detail = format!("the server does not let clients listen on {listen} (no --permit-listen of it does)");
            return Err(Failure::new(Reason::NotAllowed, &detail));
        }
        let place = Arc::clone(&self.free).try_acquire_owned();
        let place = place
            .map_err(|_none| Failure::new(Reason::Busy, &format!("a client has at most {LISTENERS_MAX} listeners")))?;
        let bound = Bound::open_for_client(listen).map_err(|why| Failure::new(Reason::Other, &why.to_string()))?;
        let way = Way {
            sessions: Sessions::One(Arc::clone(session)),
            request: Box::new(move |origin| Message::Arrived { id, origin }),
            shown: session.peer.clone(),
            events: Arc::clone(&session.events),
            places: Arc::clone(&self.places),
        };
        let (listen, mut tasks) = (bound.listen.clone(), JoinSet::new());
        bound.serve(&Arc::new(way), &mut tasks);
        Ok(OpenListener { listen, tasks, _place: place })
    }

    /// Waits until all are closed, after the end of the connection. No other one can be opened then.
    pub async fn all_closed(&self) {
        let _all = self.free.acquire_many(LISTENERS_MAX as u32).await;
        self.free.close();
    }

    /// Keeps a listener open until its stream ends.
    async fn keep(&self, session: &Arc<Session>, id: u32, listen: &Listen, (mut send, mut recv): Streams) {
        match self.open(session, id, listen) {
            Ok(open) => {
                let answer = Message::Listening { id, listen: open.listen.clone() };
                if frames::send(&mut send, &answer).await.is_ok() {
                    // Nothing but the end is expected.
                    let _end = frames::read(&mut recv).await;
                }
                open.close().await;
            }
            Err(failure) => {
                // Where that fails, the connection has ended.
                let _over = frames::send(&mut send, &Message::NotListening { id, failure }).await;
            }
        }
        // The client learns that the port is free.
        let _over = send.finish();
        recv.stop(RESET);
    }
}

impl OtherRequests for Listeners {
    fn take(self: Arc<Self>, session: &Arc<Session>, request: Message, streams: Streams) -> Option<(Message, Streams)> {
        let Message::Listen { id, listen } = request else { return Some((request, streams)) };
        let session = Arc::clone(session);
        tokio::spawn(async move { self.keep(&session, id, &listen, streams).await });
        None
    }
}

impl OpenListener {
    /// Closes it. Its ports are free afterwards.
    pub async fn close(mut self) {
        self.tasks.shutdown().await;
    }
}
