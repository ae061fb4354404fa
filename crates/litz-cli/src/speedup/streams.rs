//! Reads several streams on one thread, in the order in which data arrives.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use litz::{Connection, ReadError, RecvStream, StridedBytes};

/// The reading thread.
struct Sleeping(Thread);

impl Wake for Sleeping {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Streams that one thread reads.
pub(super) struct Streams {
    streams: Vec<RecvStream>,
    /// Index of the stream to poll first.
    next: usize,
    /// Wakes the thread that created this.
    waker: Waker,
}

impl Streams {
    /// Waits for the first `count` streams of the peer.
    ///
    /// # Errors
    /// A message for the user, if the connection ends first.
    pub(super) fn accept(connection: &Connection, count: u16) -> Result<Self, String> {
        let streams = (0..count).map(|_| connection.accept_uni().map_err(|error| error.to_string()));
        #[expect(clippy::disallowed_methods, reason = "the application sleeps here, not the protocol")]
        let waker = Waker::from(Arc::new(Sleeping(std::thread::current())));
        Ok(Self { streams: streams.collect::<Result<_, _>>()?, next: 0, waker })
    }

    /// The next bytes of any stream; none if one has ended.
    ///
    /// # Errors
    /// As [`RecvStream::read_strided`].
    pub(super) fn read_strided(&mut self) -> Result<Option<StridedBytes>, ReadError> {
        if let [only] = &mut self.streams[..] {
            return only.read_strided();
        }
        loop {
            let mut context = Context::from_waker(&self.waker);
            for _ in 0..self.streams.len() {
                let at = self.next;
                self.next = (at + 1) % self.streams.len();
                if let Poll::Ready(read) = pin!(self.streams[at].read_strided_async()).poll(&mut context) {
                    return read;
                }
            }
            // A wakeup since the last poll makes this return at once.
            std::thread::park();
        }
    }
}
