//! A processor of paths: a thread that serves the sockets of its paths from the system call to the sealed and the opened batch.
//!
//! ```text
//!            orders: plans to send, batches to open ──▶ ┌───────────┐ ◀─▶ sockets of its paths
//!   driver ◀─ arrivals ──────────────────────────────── │ processor │
//!          ◀─ news: reports, opened batches ─────────── └───────────┘
//! ```
//!
//! What belongs to a connection as a whole stays with the driver: deciding, numbering, absorbing. A plan becomes datagrams and
//! leaves here. The report that it leaves is put into the ring before the system call, so no acknowledgement overtakes it.
//! What arrives is told to the driver, which says whose it is and lends keys; bulk is then opened here.
//!
//! | file | what |
//! |---|---|
//! | `values` | orders, arrivals and news |
//! | `hand` | the thread's own end: its duty cycle |
//! | this one | the driver's end, and what it makes of a processor that dies or hangs |

mod hand;
mod values;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread::JoinHandle;

use net::MonotonicClock;
use quic::{ConnectionKey, OpenJob, Plan};
use rtrb::{Consumer, Producer, RingBuffer};
use units::{Duration, Instant};

use self::hand::{Hand, Rings};
use self::values::Order;
pub(crate) use self::values::{Arrival, News};
use crate::cells::ConnectionCell;
use crate::port::{NearPort, Parcel};
use crate::receive::{Arrived, RECV_BUFFERS};
use crate::sleep::Sleeper;
use crate::socket::LiveSocket;
use crate::wake::{ArrivalWaker, EngineWaker};

/// Plans a processor has at a time, at most: one that leaves, one that is sealed next, and two to bridge what the driver does
/// meanwhile. They leave within a fraction of a millisecond.
const SENDS_MAX: usize = 4;

/// Batches it has to open at a time, at most. While there are so many the driver looks at no more news.
const OPENS_MAX: usize = 8;

/// A batch may hold datagrams of as many connections: each becomes an order of its own.
const SPLITS_MAX: usize = 64;

/// Orders a ring holds: all of the above, and answers to strangers.
const ORDERS_MAX: usize = SENDS_MAX + OPENS_MAX + SPLITS_MAX + 8;

/// News a ring holds: each order makes two at most, and so does a socket that has room again.
const NEWS_MAX: usize = 2 * ORDERS_MAX + 2 * crate::engine::SOCKETS_MAX;

/// Arrivals a ring holds: 4 MiB. While it is full, nothing is received.
const ARRIVALS_MAX: usize = 64;

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
    is_reported: bool,
}

/// A processor of paths, as the driver sees it.
pub(crate) struct PathProcessor {
    orders: Producer<Order>,
    news: Consumer<News>,
    arrivals: Consumer<Arrival>,
    waker: Arc<EngineWaker>,
    thread: Option<JoinHandle<()>>,
    /// In the order in which they were handed over.
    sends: VecDeque<OnTheWay>,
    opens: usize,
    next_ticket: u64,
    /// Turns of its duty cycle, and how many there had been when it was last looked at, and when that was.
    turns: Arc<AtomicU64>,
    turns_seen: u64,
    looked_at: Instant,
    state: State,
    spare_plans: Vec<Plan>,
    #[expect(clippy::vec_box, reason = "jobs travel through rings in the boxes they are kept in")]
    spare_opens: Vec<Box<OpenJob>>,
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
    pub(crate) clock: MonotonicClock,
    pub(crate) busy_poll: Duration,
    /// Wakes the driver.
    pub(crate) owner: Arc<EngineWaker>,
}

impl PathProcessor {
    /// Starts one that serves `sockets`, each with its number in the engine.
    ///
    /// # Errors
    /// If the system gives no thread or no poll.
    #[expect(clippy::disallowed_methods, reason = "this is where processors are given out")]
    pub(crate) fn start(start: Start, sockets: Vec<(usize, SocketAddr, Box<dyn LiveSocket>)>) -> std::io::Result<Self> {
        let (orders, to_do) = RingBuffer::new(ORDERS_MAX);
        let (told, news) = RingBuffer::new(NEWS_MAX);
        let (received, arrivals) = RingBuffer::new(ARRIVALS_MAX);
        let turns = Arc::new(AtomicU64::new(0));
        let (sleeper, waker) = Sleeper::new(start.clock, start.busy_poll)?;
        let waker = Arc::new(waker);
        let mut ports = Vec::with_capacity(sockets.len());
        for (index, local, socket) in sockets {
            ports.push((index, NearPort::new(socket, local, Arc::new(ArrivalWaker::new(Arc::clone(&waker))))));
        }
        let looked_at = start.clock.now();
        let name = start.name.clone();
        let rings = Rings { orders: to_do, news: told, arrivals: received, turns: Arc::clone(&turns) };
        let hand = Hand::new(start, ports, sleeper, Arc::clone(&waker), rings)?;
        let thread = std::thread::Builder::new().name(name).spawn(move || hand.run())?;
        Ok(Self {
            orders,
            news,
            arrivals,
            waker,
            thread: Some(thread),
            sends: VecDeque::new(),
            opens: 0,
            next_ticket: 0,
            turns,
            turns_seen: 0,
            looked_at,
            state: State::Well,
            spare_plans: Vec::new(),
            spare_opens: Vec::new(),
        })
    }

    /// Whether it takes another plan.
    pub(crate) fn has_room(&self) -> bool {
        self.state == State::Well && self.sends.len() < SENDS_MAX
    }

    /// Nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Gone || (self.sends.is_empty() && self.opens == 0)
    }

    /// Something arrives from a path whose batches are being opened: what follows must follow there.
    pub(crate) fn is_opening(&self) -> bool {
        self.opens > 0
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
        self.sends.push_back(OnTheWay { ticket, key, cell, plan: Arc::clone(&plan), is_reported: false });
        self.give(Order::Send { ticket, parcel, plan });
    }

    /// Hands over a batch to open. If the processor is gone, so is the batch.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        cell: Arc<ConnectionCell>,
        open: Box<OpenJob>,
        batch: Arrived,
    ) {
        if self.state == State::Gone || self.orders.slots() <= SENDS_MAX {
            // As if the network had lost it: the processor is gone, or a batch of many small datagrams fell into too many.
            return;
        }
        self.note_work(now);
        self.opens += 1;
        self.give(Order::Open { key, cell, open, batch });
    }

    /// Answers a packet that belongs to no connection; it may be lost.
    pub(crate) fn reply(
        &mut self,
        port: usize,
        destination: SocketAddr,
        source_ip: Option<std::net::IpAddr>,
        bytes: &[u8],
    ) {
        // Room for the orders of connections is never given away.
        if self.state == State::Well && self.orders.slots() > SENDS_MAX + OPENS_MAX + SPLITS_MAX {
            self.give(Order::Reply { port, destination, source_ip, contents: bytes.to_vec() });
        }
    }

    fn note_work(&mut self, now: Instant) {
        if self.is_idle() {
            self.looked_at = now;
        }
    }

    fn give(&mut self, order: Order) {
        // Plans and openings are counted, and a batch splits into so many at most. What a processor that has just died does not
        // take is as lost as what it had.
        let is_taken = self.orders.push(order).is_ok();
        assert!(is_taken || self.orders.is_abandoned(), "a ring has room for what may be under way");
        self.waker.wake();
    }

    /// Whether there is something to take.
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty() || (self.takes_arrivals() && !self.arrivals.is_empty())
    }

    /// While it has enough to open, what arrives has to wait.
    fn takes_arrivals(&self) -> bool {
        self.opens < OPENS_MAX
    }

    /// The next news. To be taken before what arrives, so that no acknowledgement overtakes a report.
    pub(crate) fn take_news(&mut self) -> Option<News> {
        let news = self.news.pop().ok()?;
        match &news {
            News::Emitted { ticket, .. } => {
                if let Some(sent) = self.sends.iter_mut().find(|sent| sent.ticket == *ticket) {
                    sent.is_reported = true;
                }
            }
            News::Sent { ticket, .. } => self.sends.retain(|sent| sent.ticket != *ticket),
            News::Opened { .. } => self.opens = self.opens.saturating_sub(1),
            News::Late { .. } => {}
        }
        Some(news)
    }

    /// The next batch that has arrived.
    pub(crate) fn take_arrival(&mut self) -> Option<Arrival> {
        if !self.takes_arrivals() {
            return None;
        }
        let was_full = self.arrivals.slots() > ARRIVALS_MAX - RECV_BUFFERS;
        let arrival = self.arrivals.pop().ok()?;
        if was_full {
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
            if self.news.is_empty() {
                // Nobody opens anything any more, so that is no reason to leave arrivals where they are.
                self.opens = 0;
                if self.arrivals.is_empty() {
                    // Also if it was known to hang: now it will not be back.
                    self.state = State::Gone;
                    return Turn::Lost;
                }
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

    /// The next plan that a processor which is gone had and did not report as leaving.
    pub(crate) fn take_unsent(&mut self) -> Option<(ConnectionKey, Arc<ConnectionCell>, Arc<Plan>)> {
        while let Some(sent) = self.sends.pop_front() {
            if !sent.is_reported {
                return Some((sent.key, sent.cell, sent.plan));
            }
        }
        None
    }

    // ── Memory that is used again ────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn spare_plan(&mut self) -> Plan {
        self.spare_plans.pop().unwrap_or_default()
    }

    pub(crate) fn spare_open(&mut self) -> Box<OpenJob> {
        self.spare_opens.pop().unwrap_or_default()
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
        if self.spare_opens.len() < OPENS_MAX {
            open.clear();
            self.spare_opens.push(open);
        }
    }
}

/// The end of a processor that is not needed any more. One that hangs is left to itself.
impl Drop for PathProcessor {
    fn drop(&mut self) {
        // The thread sees that its ring is abandoned.
        let (orders, _) = RingBuffer::new(1);
        drop(std::mem::replace(&mut self.orders, orders));
        self.waker.wake();
        if let Some(thread) = self.thread.take().filter(|_| self.state != State::Hangs) {
            // A panic was told when it happened.
            let _panicked = thread.join();
        }
    }
}
