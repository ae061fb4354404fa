//! The placement `split`: a thread that has the receive halves of busy connections, from the system call to the application.
//!
//! ```text
//!             orders: halves to take, values for them ──▶ ┌───────────┐ ◀── sockets, to receive
//!   driver ◀─ arrivals of whole connections ───────────── │ receiver  │
//!          ◀─ news: reports, halves that return ───────── └───────────┘ ──▶ readers
//!     └─────▶ sockets, to send
//! ```
//!
//! The driver keeps whatever is sent, control, and connections that are whole: those that begin, that end, that have little to do.
//! A connection departs when much arrives for it, and comes back when that is over, when its end begins, or when something
//! arrives that concerns both halves, such as a new path.
//!
//! Orders are in the ring before a plan leaves that may cause what they are about; news are taken before a plan is made.
//!
//! | file | what |
//! |---|---|
//! | `values` | orders, arrivals and news |
//! | `figures` | what it did, counted |
//! | `guest` | a receive half while it is there |
//! | `hand` | the thread's own end: its duty cycle |
//! | this one | the driver's end, and what it makes of a thread that dies or hangs |

mod figures;
mod guest;
mod hand;
mod values;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::mpsc::{self, RecvTimeoutError, channel};
use std::thread::JoinHandle;

use crate::clock::Clock;
use quic::ConnectionKey;
use rtrb::{Consumer, Producer, RingBuffer};
use units::{Duration, Instant};

pub(crate) use self::figures::Figures;
pub use self::figures::SplitStats;
use self::figures::add;
pub(crate) use self::guest::Guest;
use self::hand::{Hand, Rings};
use self::values::Order;
pub(crate) use self::values::{Arrival, News, Report, Word};
use crate::crew::Crew;
use crate::port::NearPort;
use crate::receive::RECV_BUFFERS;
use crate::sleep::Sleeper;
use crate::socket::LiveSocket;
use crate::wake::{ArrivalWaker, EngineWaker};

/// Receive halves that are there at a time, at most: more busy connections than one processor can keep busy.
const GUESTS_MAX: usize = 64;

/// Orders a ring holds. While it is full nothing is sent for those that are there.
const ORDERS_MAX: usize = 1024;

/// Places of it that are left for halves to be taken and given back.
const ORDERS_RESERVED: usize = 2 * GUESTS_MAX;

/// News a ring holds. While it is full they gather where they are, and nothing is received.
pub(crate) const NEWS_MAX: usize = 512;

/// Arrivals a ring holds: 4 MiB. While it is full nothing is received.
pub(crate) const ARRIVALS_MAX: usize = 64;

/// So often a receiver that has halves is looked at. One that did no turn is woken, and if it still has done none when it is looked
/// at again it is taken for dead. Connections end by that, so it takes longer than with a processor of paths; a panic in one
/// connection may take long to be told, too.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The driver's end.
pub(crate) struct Receiver {
    orders: Producer<Order>,
    news: Consumer<News>,
    arrivals: Consumer<Arrival>,
    waker: Arc<EngineWaker>,
    thread: Option<JoinHandle<()>>,
    /// Its thread has ended.
    ended: mpsc::Receiver<Infallible>,
    guests: usize,
    /// Turns of its duty cycle, and how many there had been when it was last looked at, and when that was.
    turns: Arc<AtomicU64>,
    turns_seen: u64,
    looked_at: Instant,
    /// It had done no turn then.
    is_suspected: bool,
    is_gone: bool,
    figures: Arc<Figures>,
    #[expect(clippy::vec_box, reason = "they travel through rings in the boxes they are kept in")]
    spare_words: Vec<Box<Word>>,
    #[expect(clippy::vec_box, reason = "they travel through rings in the boxes they are kept in")]
    spent_reports: Vec<Box<Report>>,
    /// Something was put into the ring of orders since it was last woken.
    has_told: bool,
}

/// What it is started with.
pub(crate) struct Start {
    pub(crate) core: Option<usize>,
    pub(crate) clock: Clock,
    pub(crate) busy_poll: Duration,
    /// Wakes the driver.
    pub(crate) owner: Arc<EngineWaker>,
}

impl Receiver {
    /// Starts one that receives from these sockets, in the order of their numbers.
    ///
    /// # Errors
    /// If the system gives no thread or no poll.
    pub(crate) fn start(
        start: Start,
        crew: &mut Crew,
        sockets: Vec<(SocketAddr, Box<dyn LiveSocket>)>,
    ) -> std::io::Result<Self> {
        let (orders, to_do) = RingBuffer::new(ORDERS_MAX);
        let (told, news) = RingBuffer::new(NEWS_MAX);
        let (received, arrivals) = RingBuffer::new(ARRIVALS_MAX);
        let turns = Arc::new(AtomicU64::new(0));
        let (sleeper, waker) = Sleeper::new(start.clock.clone(), start.busy_poll)?;
        let waker = Arc::new(waker);
        let port = |(local, socket)| NearPort::new(socket, local, Arc::new(ArrivalWaker::new(Arc::clone(&waker))));
        let ports: Vec<NearPort> = sockets.into_iter().map(port).collect();
        let looked_at = start.clock.now();
        let figures = Arc::new(Figures::default());
        let counted = Arc::clone(&figures);
        let rings =
            Rings { orders: to_do, news: told, arrivals: received, turns: Arc::clone(&turns), figures: counted };
        let (ends, ended) = channel();
        let hand = Hand::new(start, ports, sleeper, Arc::clone(&waker), rings, ends)?;
        let thread = crew.take_on("litz-receive", hand)?;
        Ok(Self {
            orders,
            news,
            arrivals,
            waker,
            thread,
            ended,
            guests: 0,
            turns,
            turns_seen: 0,
            looked_at,
            is_suspected: false,
            is_gone: false,
            figures,
            spare_words: Vec::new(),
            spent_reports: Vec::new(),
            has_told: false,
        })
    }

    /// What it did.
    pub(crate) fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// Whether it takes another receive half.
    pub(crate) fn takes_guests(&self) -> bool {
        !self.is_gone && self.guests < GUESTS_MAX && self.has_room()
    }

    /// Whether it takes more to be told to those that are there.
    pub(crate) fn has_room(&self) -> bool {
        self.is_gone || self.orders.slots() > ORDERS_RESERVED
    }

    /// Hands over a receive half.
    pub(crate) fn take(&mut self, now: Instant, key: ConnectionKey, guest: Box<Guest>) {
        self.give(now, Order::Take { key, guest });
        self.guests += 1;
        add(&self.figures.departed, 1);
    }

    /// Tells a receive half that is there.
    pub(crate) fn tell(&mut self, now: Instant, key: ConnectionKey, mut word: Box<Word>) {
        word.spent = self.spent_reports.pop();
        self.give(now, Order::Tell { key, word });
    }

    /// Asks for a receive half.
    pub(crate) fn recall(&mut self, now: Instant, key: ConnectionKey) {
        self.give(now, Order::GiveBack { key });
    }

    /// Asks it to receive nothing for a moment; it says when it does.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.give(now, Order::Pause);
    }

    /// Lets it receive again.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.give(now, Order::Resume);
    }

    fn give(&mut self, now: Instant, order: Order) {
        if !self.is_watched() {
            (self.looked_at, self.is_suspected) = (now, false);
        }
        // What the thread does not take any more, since it has died, is as lost as what it had.
        let is_taken = self.orders.push(order).is_ok();
        assert!(is_taken || self.orders.is_abandoned(), "a ring has room for halves to come and go");
        self.has_told = true;
    }

    /// Wakes it if there is something new for it.
    pub(crate) fn wake(&mut self) {
        if std::mem::take(&mut self.has_told) {
            self.waker.wake();
        }
    }

    /// Whether there is something to take.
    pub(crate) fn has_news(&self) -> bool {
        !self.is_gone && (!self.news.is_empty() || !self.arrivals.is_empty())
    }

    /// Whether the batch that is to be taken next has arrived at this socket, too.
    pub(crate) fn has_more_of(&self, port: usize) -> bool {
        !self.is_gone && self.arrivals.peek().is_ok_and(|next| next.port == port)
    }

    /// The next news. To be taken before a plan is made.
    pub(crate) fn take_news(&mut self) -> Option<News> {
        if self.is_gone {
            // One that hung and is back: what it had is over.
            return None;
        }
        let was_full = self.news.slots() > NEWS_MAX / 2;
        let news = self.news.pop().ok()?;
        if was_full {
            // It may wait for room.
            self.waker.wake();
        }
        match &news {
            News::Returned { .. } => {
                self.guests -= 1;
                add(&self.figures.returned, 1);
            }
            News::Broken { .. } => {
                self.guests -= 1;
                add(&self.figures.lost, 1);
            }
            _ => {}
        }
        Some(news)
    }

    /// The next batch of a connection that is whole, or of nobody.
    pub(crate) fn take_arrival(&mut self) -> Option<Arrival> {
        if self.is_gone {
            return None;
        }
        let was_full = self.arrivals.slots() > ARRIVALS_MAX - RECV_BUFFERS;
        let arrival = self.arrivals.pop().ok()?;
        if was_full {
            self.waker.wake();
        }
        Some(arrival)
    }

    /// True once it turns out that it has died, or hangs, which counts the same: what it had is lost.
    pub(crate) fn look(&mut self, now: Instant) -> bool {
        if self.is_gone {
            return false;
        }
        if self.news.is_abandoned() {
            // What it told before it ended is there to be seen.
            fence(Ordering::Acquire);
            return self.news.is_empty() && self.arrivals.is_empty() && self.give_up();
        }
        if !self.is_watched() || self.looked_at + LOOK_EVERY > now {
            return false;
        }
        let turns = self.turns.load(Ordering::Relaxed);
        let does_turns = std::mem::replace(&mut self.turns_seen, turns) != turns;
        self.looked_at = now;
        self.waker.wake();
        // One that sleeps does a turn for being woken.
        let was_suspected = std::mem::replace(&mut self.is_suspected, !does_turns);
        was_suspected && !does_turns && self.give_up()
    }

    /// It is gone. If it is not, it sees that nobody has orders for it any more.
    fn give_up(&mut self) -> bool {
        let (orders, _) = RingBuffer::new(1);
        self.orders = orders;
        self.is_gone = true;
        add(&self.figures.lost, self.guests as u64);
        self.guests = 0;
        true
    }

    /// It has something to do.
    fn is_watched(&self) -> bool {
        !self.is_gone && (self.guests > 0 || self.orders.slots() < ORDERS_MAX)
    }

    /// When [`look`](Self::look) has something to see.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.is_watched().then(|| self.looked_at + LOOK_EVERY)
    }

    // ── Memory that is used again ────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn spare_word(&mut self) -> Box<Word> {
        self.spare_words.pop().unwrap_or_default()
    }

    pub(crate) fn keep_word(&mut self, word: Box<Word>) {
        // At most as many as there were under way.
        self.spare_words.push(word);
    }

    pub(crate) fn keep_report(&mut self, mut report: Box<Report>) {
        self.spare_words.extend(report.spent.take());
        if self.spent_reports.len() < GUESTS_MAX {
            self.spent_reports.push(report);
        }
    }
}

/// The end of a receiver that is not needed any more. One that hangs is left to itself.
impl Drop for Receiver {
    fn drop(&mut self) {
        let hangs = self.is_gone && !self.news.is_abandoned();
        // The thread sees that its ring is abandoned.
        let (orders, _) = RingBuffer::new(1);
        drop(std::mem::replace(&mut self.orders, orders));
        self.waker.wake();
        // Sockets, keys and wakers may be anybody's, and hang for good.
        let Some(thread) = self.thread.take().filter(|_| !hangs) else { return };
        match self.ended.recv_timeout(LOOK_EVERY.into()) {
            Err(RecvTimeoutError::Timeout) => tracing::error!("the receiver does not end: it is left to itself"),
            Err(RecvTimeoutError::Disconnected) => {
                // A panic was told when it happened.
                let _panicked = thread.join();
            }
            Ok(never) => match never {},
        }
    }
}
