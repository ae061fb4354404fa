//! A processor of paths: a thread that serves the sockets of its paths from the system call to the sealed and the opened batch.
//!
//! ```text
//!            orders: plans to send, loans ───────▶ ┌───────────┐ ◀─▶ sockets of its paths
//!   driver ◀─ arrivals, opened if it has the keys ─ │ processor │
//!          ◀─ news: reports of what leaves ──────── └───────────┘
//! ```
//!
//! What belongs to a connection as a whole stays with the driver: deciding, numbering, absorbing. A plan becomes datagrams and
//! leaves here. The report that it leaves is put into the ring before the system call, so no acknowledgement overtakes it.
//! What arrives is opened here once the driver has lent what that takes; the driver says whose it is and what becomes of it.
//! A processor with nothing to do on its own paths seals for the driver's (`crate::stage`).
//!
//! | file | what |
//! |---|---|
//! | `values` | orders, arrivals and news |
//! | `loans` | what is lent, and how borrowers learn of changes |
//! | `hand` | the thread's own end: its duty cycle |
//! | this one | the driver's end, and what it makes of a processor that dies or hangs |

mod hand;
mod loans;
mod values;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;

use crate::clock::Clock;
use quic::{ConnectionKey, OpenJob, Plan};
use rtrb::{Consumer, Producer, RingBuffer};
use units::{Duration, Instant};

use self::hand::{Hand, OtherEnds, Rings};
pub(crate) use self::loans::{Lender, Lent};
use self::values::Order;
pub(crate) use self::values::{Arrival, News, OpenedThere};
use crate::cells::ConnectionCell;
use crate::crew::Crew;
use crate::port::{NearPort, Parcel};
use crate::receive::RECV_BUFFERS;
use crate::sleep::Sleeper;
use crate::socket::LiveSocket;
use crate::stage::{Helper, Tally};
use crate::wake::{ArrivalWaker, EngineWaker};

/// Plans a processor has at a time, at most: one that leaves, one that is sealed next, and two to bridge what the driver does
/// meanwhile. They leave within a fraction of a millisecond.
const SENDS_MAX: usize = 4;

/// Loans on their way to it, at most; what is not lent for that is lent with the next batch.
const LOANS_ON_THE_WAY_MAX: usize = 32;

/// Orders a ring holds: all of the above, and answers to strangers.
const ORDERS_MAX: usize = ORDERS_RESERVED + LOANS_ON_THE_WAY_MAX + 8;

/// Places of the ring of orders that answers and loans leave free: for plans, and for questions whether all have left, of which
/// there is one after a plan at most.
const ORDERS_RESERVED: usize = 2 * SENDS_MAX + 1;

/// News a ring holds: each order makes two at most, and so does a socket that has room again.
const NEWS_MAX: usize = 2 * ORDERS_MAX + 2 * crate::engine::SOCKETS_MAX;

/// Arrivals a ring holds: 4 MiB. While it is full, nothing is received.
pub(crate) const ARRIVALS_MAX: usize = 64;

/// A processor that waits for room in the ring of arrivals is woken when so many are left there: it has work again before the
/// driver runs out of it, and is not woken for every batch.
const ARRIVALS_LOW: usize = ARRIVALS_MAX / 2;

const _: () = assert!(ARRIVALS_LOW + RECV_BUFFERS <= ARRIVALS_MAX, "who is woken finds room");

/// A processor that makes no progress with what it has for so long is taken for dead. Longer than any machine makes a thread
/// wait that is not stuck; shorter than what a peer takes for a dead path.
const HANG_AFTER: Duration = Duration::from_millis(200);

/// What the driver knows of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Well,
    /// It does not answer; it may come back.
    Hangs,
    /// Its thread has ended.
    Gone,
}

/// A plan that was handed over.
struct OnTheWay {
    ticket: u64,
    key: ConnectionKey,
    cell: Arc<ConnectionCell>,
    plan: Arc<Plan>,
}

/// A processor of paths, as the driver sees it.
pub(crate) struct PathProcessor {
    orders: Producer<Order>,
    news: Consumer<News>,
    arrivals: Consumer<Arrival>,
    waker: Arc<EngineWaker>,
    thread: Option<JoinHandle<()>>,
    /// Closed when the thread has let go of everything.
    ended: Receiver<Infallible>,
    /// Jobs that were opened with, to be used again there.
    jobs_back: Producer<Box<OpenJob>>,
    /// Those that were not reported as leaving, in the order in which they were handed over.
    sends: VecDeque<OnTheWay>,
    next_ticket: u64,
    /// The last batch of which news came was refused.
    has_refused: bool,
    /// Up to which ticket it was asked to tell when nothing is left to send, and has told.
    finish_asked: Option<u64>,
    finish_told: Option<u64>,
    pub(crate) tally: Arc<Tally>,
    /// Turns of its duty cycle, and how many there had been when it was last looked at, and when that was.
    turns: Arc<AtomicU64>,
    turns_seen: u64,
    looked_at: Instant,
    state: State,
    spare_plans: Vec<Plan>,
}

/// What a look at a processor tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing new.
    None,
    /// Its paths are dead until further notice.
    Lost,
    /// It answers again.
    Back,
}

/// What a processor is started with.
pub(crate) struct Start {
    pub(crate) name: String,
    pub(crate) core: Option<usize>,
    pub(crate) clock: Clock,
    pub(crate) busy_poll: Duration,
    /// Wakes the driver.
    pub(crate) owner: Arc<EngineWaker>,
}

/// A socket that a processor serves: its number in the engine, its address, itself.
pub(crate) type Served = (usize, SocketAddr, Box<dyn LiveSocket>);

impl PathProcessor {
    /// Starts one that serves `sockets`. `help` makes, of what wakes it, the end at which it takes work of the driver's.
    ///
    /// # Errors
    /// If the system gives no thread or no poll.
    pub(crate) fn start(
        start: Start,
        crew: &mut Crew,
        sockets: Vec<Served>,
        help: impl FnOnce(&Arc<EngineWaker>) -> Option<Helper>,
    ) -> std::io::Result<Self> {
        let (orders, to_do) = RingBuffer::new(ORDERS_MAX);
        let (told, news) = RingBuffer::new(NEWS_MAX);
        let (received, arrivals) = RingBuffer::new(ARRIVALS_MAX);
        let (jobs_back, jobs) = RingBuffer::new(ARRIVALS_MAX);
        let (turns, tally) = (Arc::new(AtomicU64::new(0)), Arc::new(Tally::default()));
        let (sleeper, waker) = Sleeper::new(start.clock.clone(), start.busy_poll)?;
        let waker = Arc::new(waker);
        let mut ports = Vec::with_capacity(sockets.len());
        for (index, local, socket) in sockets {
            ports.push((index, NearPort::new(socket, local, Arc::new(ArrivalWaker::new(Arc::clone(&waker))))));
        }
        let looked_at = start.clock.now();
        let name = start.name.clone();
        let rings = Rings { orders: to_do, news: told, arrivals: received, jobs, turns: Arc::clone(&turns) };
        let (ends, ended) = channel();
        let others = OtherEnds { helper: help(&waker), tally: Arc::clone(&tally), _ends: ends };
        let hand = Hand::new(start, ports, sleeper, Arc::clone(&waker), rings, others)?;
        let thread = crew.take_on(&name, hand)?;
        Ok(Self {
            orders,
            news,
            arrivals,
            waker,
            thread,
            ended,
            jobs_back,
            sends: VecDeque::new(),
            next_ticket: 0,
            has_refused: false,
            finish_asked: None,
            finish_told: None,
            tally,
            turns,
            turns_seen: 0,
            looked_at,
            state: State::Well,
            spare_plans: Vec::new(),
        })
    }

    /// Whether it takes another plan.
    pub(crate) fn has_room(&self) -> bool {
        self.state == State::Well && self.sends.len() < SENDS_MAX
    }

    /// Plans it has.
    pub(crate) fn send_count(&self) -> usize {
        self.sends.len()
    }

    /// It has nothing that it must do.
    fn is_idle(&self) -> bool {
        self.sends.is_empty() && self.finish_asked == self.finish_told
    }

    /// Whether nothing is left to send, as far as that can be known: asks it, once after the last plan.
    pub(crate) fn has_finished(&mut self, now: Instant) -> bool {
        if self.state != State::Well {
            return true;
        }
        let all = Some(self.next_ticket);
        if self.finish_asked != all {
            self.note_work(now);
            self.finish_asked = all;
            self.give(Order::Finish { next_ticket: self.next_ticket });
        }
        self.finish_told == all
    }

    /// Hands over a plan.
    ///
    /// # Panics
    /// If it has no room.
    pub(crate) fn send(&mut self, now: Instant, key: ConnectionKey, cell: Arc<ConnectionCell>, plan: Arc<Plan>) {
        assert!(self.has_room(), "the caller has asked");
        self.note_work(now);
        let parcel = Parcel { key, cell: Arc::clone(&cell), receipt: plan.receipt() };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.sends.push_back(OnTheWay { ticket, key, cell, plan: Arc::clone(&plan) });
        self.give(Order::Send { ticket, parcel, plan });
    }

    /// Lends what opens the batches that follow; none if there are too many loans on their way.
    pub(crate) fn lend(&mut self, lent: Lent) {
        if self.state == State::Well && self.orders.slots() > ORDERS_MAX - LOANS_ON_THE_WAY_MAX {
            self.give(Order::Borrow(Box::new(lent)));
        }
    }

    /// Answers a packet that belongs to no connection; it may be lost.
    pub(crate) fn reply(
        &mut self,
        port: usize,
        destination: SocketAddr,
        source_ip: Option<std::net::IpAddr>,
        bytes: &[u8],
    ) {
        // Room for plans is never given away.
        if self.state == State::Well && self.orders.slots() > ORDERS_RESERVED {
            self.give(Order::Reply { port, destination, source_ip, contents: bytes.to_vec() });
        }
    }

    fn note_work(&mut self, now: Instant) {
        if self.is_idle() {
            self.looked_at = now;
        }
    }

    fn give(&mut self, order: Order) {
        // Plans are counted, and others leave them room. What a processor that has just died does not take is as lost as what
        // it had.
        let is_taken = self.orders.push(order).is_ok();
        assert!(is_taken || self.orders.is_abandoned(), "a ring has room for what may be under way");
        self.waker.wake();
    }

    /// Whether there is something to take.
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty() || !self.arrivals.is_empty()
    }

    /// Whether the batch that is to be taken next has arrived at this socket, too.
    pub(crate) fn has_more_of(&self, port: usize) -> bool {
        self.arrivals.peek().is_ok_and(|next| next.port == port)
    }

    /// The next news. To be taken before what arrives, so that no acknowledgement overtakes a report.
    pub(crate) fn take_news(&mut self) -> Option<News> {
        let news = self.news.pop().ok()?;
        match &news {
            // In order, but for those that wait for a socket that is full.
            News::Leaves { ticket, .. } => self.sends.retain(|sent| sent.ticket != *ticket),
            News::Finished { next_ticket } => self.finish_told = Some(*next_ticket),
            News::Late { .. } | News::Refused { .. } => {}
        }
        Some(news)
    }

    /// Notes whether the system refused a batch, of which news came just now; whether it did so with the one before.
    pub(crate) fn note_refused(&mut self, is_refused: bool) -> bool {
        std::mem::replace(&mut self.has_refused, is_refused)
    }

    /// The next batch that has arrived.
    pub(crate) fn take_arrival(&mut self) -> Option<Arrival> {
        let arrival = self.arrivals.pop().ok()?;
        if self.arrivals.slots() == ARRIVALS_LOW {
            // It may wait for room in the ring.
            self.waker.wake();
        }
        Some(arrival)
    }

    /// Looks whether it lives.
    pub(crate) fn look(&mut self, now: Instant) -> Turn {
        if self.state == State::Gone {
            return Turn::None;
        }
        if self.news.is_abandoned() {
            // What it told before it ended is there to be seen.
            fence(Ordering::Acquire);
            if self.news.is_empty() && self.arrivals.is_empty() {
                // Also if it was known to hang: now it will not be back.
                self.state = State::Gone;
                return Turn::Lost;
            }
            return Turn::None;
        }
        if self.state == State::Well && (self.is_idle() || self.looked_at + HANG_AFTER > now) {
            return Turn::None;
        }
        let turns = self.turns.load(Ordering::Relaxed);
        let does_turns = std::mem::replace(&mut self.turns_seen, turns) != turns;
        self.looked_at = now;
        // One that waits for a socket does a turn for being woken.
        self.waker.wake();
        match (self.state, does_turns) {
            (State::Well, false) => {
                self.state = State::Hangs;
                Turn::Lost
            }
            (State::Hangs, true) => {
                self.state = State::Well;
                Turn::Back
            }
            _ => Turn::None,
        }
    }

    /// When [`look`](Self::look) has something to see.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let is_watched = match self.state {
            State::Well => !self.is_idle(),
            State::Hangs => true,
            State::Gone => false,
        };
        is_watched.then(|| self.looked_at + HANG_AFTER)
    }

    /// Whether its thread has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.state == State::Gone
    }

    /// Whether its paths are of use.
    pub(crate) fn is_well(&self) -> bool {
        self.state == State::Well
    }

    /// The next plan that a processor which is gone had and did not report as leaving.
    pub(crate) fn take_unsent(&mut self) -> Option<(ConnectionKey, Arc<ConnectionCell>, Arc<Plan>)> {
        self.sends.pop_front().map(|sent| (sent.key, sent.cell, sent.plan))
    }

    // ── Memory that is used again ────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn spare_plan(&mut self) -> Plan {
        self.spare_plans.pop().unwrap_or_default()
    }

    pub(crate) fn keep_plan(&mut self, plan: Arc<Plan>) {
        if let Ok(mut plan) = Arc::try_unwrap(plan)
            && self.spare_plans.len() < SENDS_MAX
        {
            plan.release();
            self.spare_plans.push(plan);
        }
    }

    pub(crate) fn keep_open(&mut self, mut open: Box<OpenJob>) {
        open.clear();
        // As many as there are arrivals; one too many is freed.
        let _full = self.jobs_back.push(open);
    }
}

/// The end of a processor that is not needed any more. One that hangs is left to itself.
impl Drop for PathProcessor {
    fn drop(&mut self) {
        // The thread sees that its ring is abandoned.
        let (orders, _) = RingBuffer::new(1);
        drop(std::mem::replace(&mut self.orders, orders));
        self.waker.wake();
        // Sockets and keys may be anybody's, and hang for good.
        let Some(thread) = self.thread.take().filter(|_| self.state != State::Hangs) else { return };
        match self.ended.recv_timeout(HANG_AFTER.into()) {
            Err(RecvTimeoutError::Timeout) => {
                tracing::error!("a processor of paths does not end: it is left to itself")
            }
            Err(RecvTimeoutError::Disconnected) => {
                // A panic was told when it happened.
                let _panicked = thread.join();
            }
            Ok(never) => match never {},
        }
    }
}
