//! [`ReplicatedSender`]: the channels of a sender.

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use bytes::Bytes;
use tcp_driver::Runtime;

use super::dispatcher::{Dispatched, Dispatcher};
use super::ends::await_ends;
use super::error::{ReplicatedError, check};
use super::frame::{CHUNK_MAX, Collector, NEWS_LEN, hello};
use super::schedule::Scheduling;
use crate::stream::GONE;
use crate::{Closed, TcpStream, WriteError};

/// The sender's side of a stream over several connections.
///
/// Its calls move the data of all channels, so their stacks need a [placement](crate::Placement) with a
/// thread.
pub struct ReplicatedSender {
    channels: Vec<Channel>,
    dispatcher: Dispatcher,
    /// Reason for the end of the last channel that ended.
    closed: Option<Closed>,
}

struct Channel {
    stream: TcpStream,
    /// Data to send next.
    outgoing: VecDeque<Bytes>,
    news: Collector<NEWS_LEN>,
}

impl ReplicatedSender {
    /// Begins a stream over connections to one peer, which accepts equally many for it.
    ///
    /// # Errors
    /// Fails if there is no channel or there are too many, a stack has no thread, or the system
    /// provides no random bytes.
    pub fn begin(streams: Vec<TcpStream>, scheduling: Scheduling) -> Result<Self, ReplicatedError> {
        check(&streams)?;
        let mut id = [0; 16];
        net::os_random(&mut id).map_err(|error| ReplicatedError::Random(error.to_string()))?;
        let dispatcher = Dispatcher::new(streams.len(), scheduling);
        let hello = hello(&id, streams.len() as u8);
        let channel = |stream: TcpStream| {
            // The rest of a small write must not wait for an acknowledgement.
            stream.set_nodelay(true);
            Channel { stream, outgoing: VecDeque::from([hello.clone()]), news: Collector::default() }
        };
        Ok(Self { channels: streams.into_iter().map(channel).collect(), dispatcher, closed: None })
    }

    /// Writes all of `bytes`. Waits while the peer accepts no more.
    ///
    /// # Errors
    /// Fails if all channels have ended, or the peer breaks the rules.
    pub fn write(&mut self, mut bytes: Bytes) -> Result<(), ReplicatedError> {
        while !bytes.is_empty() {
            let data = bytes.split_to(bytes.len().min(CHUNK_MAX));
            self.push(data)?;
        }
        Ok(())
    }

    /// Ends the stream, and waits until the peer's application has taken everything.
    ///
    /// # Errors
    /// Same errors as [`write`](Self::write).
    ///
    /// # Panics
    /// Panics if it is called twice, or [`write`](Self::write) after it.
    pub fn finish(&mut self) -> Result<(), ReplicatedError> {
        self.push(Bytes::new())?;
        self.wait_until(Dispatcher::is_complete)?;
        let living = (0..self.channels.len()).filter(|index| self.dispatcher.is_alive(*index));
        let streams: Vec<&TcpStream> = living.map(|index| &self.channels[index].stream).collect();
        streams.iter().for_each(|stream| stream.finish());
        await_ends(&streams);
        Ok(())
    }

    /// Returns the number of live channels.
    pub fn living_channels(&self) -> usize {
        (0..self.channels.len()).filter(|index| self.dispatcher.is_alive(*index)).count()
    }

    fn push(&mut self, data: Bytes) -> Result<(), ReplicatedError> {
        self.wait_until(Dispatcher::has_space)?;
        self.dispatcher.push(data);
        self.advance(Waker::noop())
    }

    /// Moves the data of all channels until `is_done`.
    fn wait_until(&mut self, is_done: impl Fn(&Dispatcher) -> bool) -> Result<(), ReplicatedError> {
        let runtime = self.channels[0].stream.handle.runtime().clone();
        let done = runtime.block_on(None, |waker| match self.advance(waker) {
            Err(error) => Poll::Ready(Err(error)),
            Ok(()) if is_done(&self.dispatcher) => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
        });
        done.unwrap_or(Err(ReplicatedError::Closed(GONE)))
    }

    /// Processes reports, and passes data to the channels.
    fn advance(&mut self, waker: &Waker) -> Result<(), ReplicatedError> {
        for index in 0..self.channels.len() {
            if self.dispatcher.is_alive(index)
                && let Err(closed) = self.take_news(index, waker)?
            {
                self.on_dead(index, closed);
            }
        }
        for index in 0..self.channels.len() {
            self.flush(index, waker);
        }
        let is_free = |channels: &[Channel], index: usize| channels[index].outgoing.is_empty();
        while let Some(dispatched) = self.dispatcher.poll(|index| is_free(&self.channels, index)) {
            let Dispatched { channel, header, data } = dispatched;
            self.channels[channel].outgoing.extend([header, data].into_iter().filter(|bytes| !bytes.is_empty()));
            self.flush(channel, waker);
        }
        if self.dispatcher.has_living() || self.dispatcher.is_complete() {
            return Ok(());
        }
        Err(ReplicatedError::Closed(self.closed.clone().unwrap_or(GONE)))
    }

    /// Processes the peer's reports on a channel. The inner error is the end of the channel.
    fn take_news(&mut self, index: usize, waker: &Waker) -> Result<Result<(), Closed>, ReplicatedError> {
        let channel = &mut self.channels[index];
        loop {
            let mut bytes = match channel.stream.handle.poll_read(usize::MAX, waker) {
                Poll::Pending => return Ok(Ok(())),
                Poll::Ready(Err(closed)) => return Ok(Err(closed)),
                // The peer closes before it has taken everything.
                Poll::Ready(Ok(None)) => return Ok(if self.dispatcher.is_complete() { Ok(()) } else { Err(GONE) }),
                Poll::Ready(Ok(Some(bytes))) => bytes,
            };
            while !bytes.is_empty() {
                let Some(next) = channel.news.take(&mut bytes) else { continue };
                if !self.dispatcher.on_taken(u64::from_be_bytes(next)) {
                    return Err(ReplicatedError::Malformed);
                }
            }
        }
    }

    /// Passes data to a channel.
    fn flush(&mut self, index: usize, waker: &Waker) {
        let channel = &mut self.channels[index];
        while let Some(bytes) = channel.outgoing.front_mut().filter(|_| self.dispatcher.is_alive(index)) {
            match channel.stream.handle.poll_write(bytes, waker) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) if bytes.is_empty() => drop(channel.outgoing.pop_front()),
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    let closed = if let WriteError::Closed(closed) = error { closed } else { GONE };
                    return self.on_dead(index, closed);
                }
            }
        }
    }

    fn on_dead(&mut self, index: usize, closed: Closed) {
        let channel = &mut self.channels[index];
        channel.outgoing.clear();
        self.dispatcher.on_dead(index);
        self.closed = Some(closed);
    }
}
