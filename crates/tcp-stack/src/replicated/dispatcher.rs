//! [`Dispatcher`]: the assignment of chunks to channels, including resent chunks. Without I/O.

use std::collections::{BTreeMap, VecDeque};

use super::frame::chunk_header;
use super::limits::{CHUNKS_PER_CHANNEL, WINDOW_PER_CHANNEL};
use super::schedule::{Load, Scheduling};
use bytes::Bytes;

/// The sender's side of a replicated stream.
#[derive(Debug)]
pub(super) struct Dispatcher {
    scheduling: Scheduling,
    channels: Vec<Channel>,
    last: usize,
    /// Number of the next new chunk.
    next: u64,
    /// Number of the first chunk not taken by the peer's application.
    taken: u64,
    /// Chunks not taken yet, with the channel that carries each.
    kept: BTreeMap<u64, (Bytes, Option<usize>)>,
    kept_bytes: u64,
    /// Numbers of chunks that no channel carries, in order.
    waiting: VecDeque<u64>,
    has_ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct Channel {
    is_alive: bool,
    waiting: u64,
    taken: u64,
}

/// A chunk for a channel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dispatched {
    pub(super) channel: usize,
    pub(super) header: Bytes,
    pub(super) data: Bytes,
}

impl Dispatcher {
    pub(super) fn new(channels: usize, scheduling: Scheduling) -> Self {
        Self {
            scheduling,
            channels: vec![Channel { is_alive: true, waiting: 0, taken: 0 }; channels],
            last: channels - 1,
            next: 0,
            taken: 0,
            kept: BTreeMap::new(),
            kept_bytes: 0,
            waiting: VecDeque::new(),
            has_ended: false,
        }
    }

    pub(super) fn is_alive(&self, channel: usize) -> bool {
        self.channels[channel].is_alive
    }

    /// Returns whether there is space for another chunk.
    pub(super) fn has_space(&self) -> bool {
        let count = self.channels.len() as u64;
        let has_window = self.kept_bytes < count * WINDOW_PER_CHANNEL;
        self.waiting.is_empty() && has_window && (self.kept.len() as u64) < count * CHUNKS_PER_CHANNEL
    }

    /// Adds a chunk; one without data ends the stream.
    pub(super) fn push(&mut self, data: Bytes) {
        assert!(!self.has_ended, "nothing follows the end");
        self.has_ended = data.is_empty();
        self.kept_bytes += data.len() as u64;
        self.kept.insert(self.next, (data, None));
        self.waiting.push_back(self.next);
        self.next += 1;
    }

    /// Returns the next chunk and its channel, among those for which `is_able` is true.
    pub(super) fn poll(&mut self, is_able: impl Fn(usize) -> bool) -> Option<Dispatched> {
        let number = *self.waiting.front()?;
        let load = |(index, channel): (usize, &Channel)| Load {
            is_able: channel.is_alive && is_able(index),
            is_alive: channel.is_alive,
            waiting: channel.waiting,
            taken: channel.taken,
        };
        let loads: Vec<Load> = self.channels.iter().enumerate().map(load).collect();
        let channel = self.scheduling.choose(&loads, self.last)?;
        self.last = channel;
        self.waiting.pop_front();
        let (data, carrier) = self.kept.get_mut(&number).expect("a chunk is kept until it was taken");
        *carrier = Some(channel);
        self.channels[channel].waiting += data.len() as u64;
        Some(Dispatched { channel, header: chunk_header(number, data.len()), data: data.clone() })
    }

    /// Records that the peer's application has taken everything before `next`. Returns false if
    /// that was never sent.
    #[must_use]
    pub(super) fn on_taken(&mut self, next: u64) -> bool {
        if next > self.next {
            return false;
        }
        while let Some(entry) = self.kept.first_entry().filter(|entry| *entry.key() < next) {
            let (data, carrier) = entry.remove();
            self.kept_bytes -= data.len() as u64;
            if let Some(channel) = carrier.map(|channel| &mut self.channels[channel]) {
                channel.waiting -= data.len() as u64;
                channel.taken += data.len() as u64;
            }
        }
        if next > self.taken {
            self.taken = next;
            // A dead channel carried it, and it arrived all the same.
            self.waiting.retain(|number| *number >= next);
        }
        true
    }

    /// Records that a channel is dead; others take over its chunks.
    pub(super) fn on_dead(&mut self, channel: usize) {
        self.channels[channel] = Channel { is_alive: false, waiting: 0, ..self.channels[channel] };
        let mut again = Vec::new();
        for (number, (_, carrier)) in &mut self.kept {
            if *carrier == Some(channel) {
                *carrier = None;
                again.push(*number);
            }
        }
        again.extend(self.waiting.drain(..));
        again.sort_unstable();
        self.waiting = again.into();
    }

    pub(super) fn has_living(&self) -> bool {
        self.channels.iter().any(|channel| channel.is_alive)
    }

    /// Returns whether the peer's application has taken everything, including the end.
    pub(super) fn is_complete(&self) -> bool {
        self.has_ended && self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(dispatcher: &mut Dispatcher, is_able: impl Fn(usize) -> bool) -> Vec<(usize, u8)> {
        let next = || dispatcher.poll(&is_able);
        std::iter::from_fn(next).map(|dispatched| (dispatched.channel, dispatched.header[7])).collect()
    }

    fn with_chunks(channels: usize, count: usize) -> Dispatcher {
        let mut dispatcher = Dispatcher::new(channels, Scheduling::FirstCome);
        (0..count).for_each(|_| dispatcher.push(Bytes::from_static(&[7; 100])));
        dispatcher
    }

    #[test]
    fn chunks_of_a_dead_channel_are_carried_by_the_others_first() {
        let mut dispatcher = with_chunks(3, 6);
        assert_eq!(numbers(&mut dispatcher, |_| true), [(0, 0), (1, 1), (2, 2), (0, 3), (1, 4), (2, 5)]);
        dispatcher.push(Bytes::from_static(b"new"));
        assert!(dispatcher.on_taken(1));
        dispatcher.on_dead(1);
        assert_eq!(numbers(&mut dispatcher, |_| true), [(0, 1), (2, 4), (0, 6)]);
        dispatcher.on_dead(0);
        dispatcher.on_dead(2);
        assert!(!dispatcher.has_living());
        assert_eq!(numbers(&mut dispatcher, |_| true), []);
    }

    #[test]
    fn what_has_arrived_after_its_channel_died_is_not_sent_again() {
        let mut dispatcher = with_chunks(2, 2);
        numbers(&mut dispatcher, |_| true);
        dispatcher.on_dead(0);
        assert!(dispatcher.on_taken(1));
        assert_eq!(numbers(&mut dispatcher, |_| true), []);
        assert!(!dispatcher.on_taken(3), "it was never sent");
    }

    #[test]
    fn the_window_and_the_end_are_known() {
        let mut dispatcher = Dispatcher::new(2, Scheduling::RoundRobin);
        let mut count = 0;
        while dispatcher.has_space() {
            dispatcher.push(vec![0; 60_000].into());
            numbers(&mut dispatcher, |_| true);
            count += 1;
        }
        assert_eq!(count, (2 * WINDOW_PER_CHANNEL).div_ceil(60_000));
        assert!(dispatcher.on_taken(count) && dispatcher.has_space() && !dispatcher.is_complete());
        dispatcher.push(Bytes::new());
        numbers(&mut dispatcher, |_| true);
        assert!(!dispatcher.is_complete());
        assert!(dispatcher.on_taken(count + 1) && dispatcher.is_complete());
    }
}
