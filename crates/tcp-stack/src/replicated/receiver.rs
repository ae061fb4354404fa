//! [`ReplicatedReceiver`]: the channels of a receiver.

use std::task::{Poll, Waker};

use bytes::Bytes;
use tcp_driver::Runtime;

use super::ends::await_ends;
use super::error::{ReplicatedError, check};
use super::frame::{Collector, HELLO_LEN, news};
use super::resequencer::Resequencer;
use crate::stream::GONE;
use crate::{Closed, TcpStream};

/// Number of chunks taken between two reports to the sender: small enough that its window never
/// limits.
const NEWS_EVERY: u64 = 4;

/// The receiver's side of a stream over several connections.
///
/// Its calls move the data of all channels, so their stacks need a [placement](crate::Placement) with a
/// thread.
pub struct ReplicatedReceiver {
    channels: Vec<Channel>,
    resequencer: Resequencer,
    /// Number of chunks reported to the sender.
    told: u64,
    closed: Option<Closed>,
}

struct Channel {
    stream: TcpStream,
    is_alive: bool,
    hello: Collector<HELLO_LEN>,
    has_hello: bool,
    /// News to send next.
    outgoing: Bytes,
}

impl ReplicatedReceiver {
    /// Begins to receive a stream over connections that one peer has opened for it, in any order.
    ///
    /// # Errors
    /// Fails if there is no channel or there are too many, a stack has no thread, all have ended,
    /// or they do not belong to one stream.
    pub fn begin(streams: Vec<TcpStream>) -> Result<Self, ReplicatedError> {
        check(&streams)?;
        let channel = |stream: TcpStream| {
            stream.set_nodelay(true);
            let outgoing = Bytes::new();
            Channel { stream, is_alive: true, hello: Collector::default(), has_hello: false, outgoing }
        };
        let resequencer = Resequencer::new(streams.len());
        let channels: Vec<Channel> = streams.into_iter().map(channel).collect();
        let mut receiver = Self { channels, resequencer, told: 0, closed: None };
        receiver.take_hellos()?;
        Ok(receiver)
    }

    /// Returns the next bytes in order; `None` at the end of the stream.
    ///
    /// # Errors
    /// Fails if all channels ended before the stream, or the peer breaks the rules.
    pub fn read(&mut self) -> Result<Option<Bytes>, ReplicatedError> {
        let runtime = self.channels[0].stream.handle.runtime().clone();
        let read = runtime.block_on(None, |waker| match self.poll_read(waker) {
            Ok(read) => read.map(Ok),
            Err(error) => Poll::Ready(Err(error)),
        });
        let read = read.unwrap_or(Err(ReplicatedError::Closed(GONE)))?;
        if read.is_none() {
            let living = self.channels.iter().filter(|channel| channel.is_alive);
            await_ends(&living.map(|channel| &channel.stream).collect::<Vec<_>>());
        }
        Ok(read)
    }

    /// Returns the number of live channels.
    pub fn living_channels(&self) -> usize {
        self.channels.iter().filter(|channel| channel.is_alive).count()
    }

    fn poll_read(&mut self, waker: &Waker) -> Result<Poll<Option<Bytes>>, ReplicatedError> {
        loop {
            if let Some(bytes) = self.resequencer.poll() {
                if self.resequencer.next() >= self.told + NEWS_EVERY {
                    self.tell(waker);
                }
                return Ok(Poll::Ready(Some(bytes)));
            }
            if self.resequencer.has_ended() {
                self.tell(waker);
                return Ok(Poll::Ready(None));
            }
            if !self.receive(waker)? {
                // No data have arrived: the sender may wait for a report.
                self.tell(waker);
                return Ok(Poll::Pending);
            }
        }
    }

    /// Takes a piece from each channel. Returns false if there is none.
    fn receive(&mut self, waker: &Waker) -> Result<bool, ReplicatedError> {
        let mut has_received = false;
        for index in 0..self.channels.len() {
            let channel = &mut self.channels[index];
            if !channel.is_alive {
                continue;
            }
            match channel.stream.handle.poll_read(usize::MAX, waker) {
                Poll::Pending => {}
                Poll::Ready(Ok(Some(bytes))) => {
                    self.resequencer.take(index, bytes)?;
                    has_received = true;
                }
                Poll::Ready(end) => {
                    (channel.is_alive, self.closed) = (false, Some(end.err().unwrap_or(GONE)));
                    // Another channel may still be alive.
                    has_received |= self.living_channels() == 0;
                }
            }
        }
        if self.living_channels() == 0 && !self.resequencer.has_next() {
            return Err(ReplicatedError::Closed(self.closed.clone().unwrap_or(GONE)));
        }
        Ok(has_received)
    }

    /// Reports the taken chunks to the sender on all channels, because one of them may have died.
    fn tell(&mut self, waker: &Waker) {
        let next = self.resequencer.next();
        let has_news = std::mem::replace(&mut self.told, next) != next;
        for channel in self.channels.iter_mut().filter(|channel| channel.is_alive) {
            // A report that was begun is completed. If a channel accepts nothing now, the next
            // report covers more.
            if has_news && channel.outgoing.is_empty() {
                channel.outgoing = news(next);
            }
            while !channel.outgoing.is_empty() {
                if channel.stream.handle.poll_write(&mut channel.outgoing, waker).is_pending() {
                    break;
                }
            }
        }
    }

    /// Takes the hello of each channel, and the data after it.
    fn take_hellos(&mut self) -> Result<(), ReplicatedError> {
        let runtime = self.channels[0].stream.handle.runtime().clone();
        let mut first: Option<[u8; HELLO_LEN]> = None;
        let all = runtime.block_on(None, |waker| {
            for index in 0..self.channels.len() {
                if let Err(error) = self.take_hello(index, &mut first, waker) {
                    return Poll::Ready(Err(error));
                }
            }
            let has_all = self.channels.iter().all(|channel| channel.has_hello || !channel.is_alive);
            if has_all { Poll::Ready(Ok(())) } else { Poll::Pending }
        });
        all.unwrap_or(Err(ReplicatedError::Closed(GONE)))?;
        if self.living_channels() > 0 {
            Ok(())
        } else {
            Err(ReplicatedError::Closed(self.closed.take().unwrap_or(GONE)))
        }
    }

    fn take_hello(
        &mut self,
        index: usize,
        first: &mut Option<[u8; HELLO_LEN]>,
        waker: &Waker,
    ) -> Result<(), ReplicatedError> {
        let count = self.channels.len();
        let channel = &mut self.channels[index];
        while channel.is_alive && !channel.has_hello {
            let mut bytes = match channel.stream.handle.poll_read(usize::MAX, waker) {
                Poll::Pending => break,
                Poll::Ready(Ok(Some(bytes))) => bytes,
                Poll::Ready(end) => {
                    (channel.is_alive, self.closed) = (false, Some(end.err().unwrap_or(GONE)));
                    break;
                }
            };
            let Some(hello) = channel.hello.take(&mut bytes) else { continue };
            if *first.get_or_insert(hello) != hello || usize::from(hello[HELLO_LEN - 1]) != count {
                return Err(ReplicatedError::Mixed);
            }
            channel.has_hello = true;
            self.resequencer.take(index, bytes)?;
        }
        Ok(())
    }
}
