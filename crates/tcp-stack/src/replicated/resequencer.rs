//! [`Resequencer`]: puts the chunks of several channels in order. Without I/O.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::error::ReplicatedError;
use super::frame::{CHUNK_HEADER_LEN, CHUNK_MAX, Collector};
use super::limits::{CHUNKS_PER_CHANNEL, WINDOW_PER_CHANNEL};

/// The receiver's side of a replicated stream.
#[derive(Debug)]
pub(super) struct Resequencer {
    channels: Vec<Parser>,
    /// Number of the next chunk for the application.
    next: u64,
    /// Complete chunks from `next` on.
    early: BTreeMap<u64, Vec<Bytes>>,
    early_bytes: u64,
    /// Pieces of the chunk before `next` that were not taken.
    ready: VecDeque<Bytes>,
    has_ended: bool,
}

/// Parser of the frames of one channel.
#[derive(Debug, Default)]
struct Parser {
    header: Collector<CHUNK_HEADER_LEN>,
    /// The arriving chunk: its number, the missing bytes, and the received pieces.
    chunk: Option<(u64, usize, Vec<Bytes>)>,
}

impl Resequencer {
    pub(super) fn new(channels: usize) -> Self {
        Self {
            channels: (0..channels).map(|_| Parser::default()).collect(),
            next: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            ready: VecDeque::new(),
            has_ended: false,
        }
    }

    /// Takes bytes of a channel.
    ///
    /// # Errors
    /// Fails if the peer breaks the rules.
    pub(super) fn take(&mut self, channel: usize, mut bytes: Bytes) -> Result<(), ReplicatedError> {
        while !bytes.is_empty() {
            let parser = &mut self.channels[channel];
            let Some((_, missing, pieces)) = &mut parser.chunk else {
                let Some(header) = parser.header.take(&mut bytes) else { continue };
                let (number, len) = header.split_at(8);
                let number = u64::from_be_bytes(number.try_into().expect("8 bytes"));
                let len = u32::from_be_bytes(len.try_into().expect("4 bytes")) as usize;
                if len > CHUNK_MAX {
                    return Err(ReplicatedError::Malformed);
                }
                parser.chunk = Some((number, len, Vec::new()));
                self.finish_chunk(channel)?;
                continue;
            };
            let piece = bytes.split_to((*missing).min(bytes.len()));
            *missing -= piece.len();
            pieces.push(piece);
            self.finish_chunk(channel)?;
        }
        Ok(())
    }

    /// Moves a complete chunk from a channel to the others.
    fn finish_chunk(&mut self, channel: usize) -> Result<(), ReplicatedError> {
        let parser = &mut self.channels[channel];
        let Some((number, _, pieces)) = parser.chunk.take_if(|(_, missing, _)| *missing == 0) else { return Ok(()) };
        // A duplicate, because its first channel has died.
        if number < self.next || self.early.contains_key(&number) {
            return Ok(());
        }
        self.early_bytes += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        let count = self.channels.len() as u64;
        let has_too_many = self.early.len() as u64 > count * CHUNKS_PER_CHANNEL;
        if has_too_many || self.early_bytes > count * WINDOW_PER_CHANNEL + CHUNK_MAX as u64 {
            return Err(ReplicatedError::Malformed);
        }
        self.early.insert(number, pieces);
        Ok(())
    }

    /// Returns the next bytes in order.
    pub(super) fn poll(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(bytes);
            }
            let pieces = self.early.remove(&self.next).filter(|_| !self.has_ended)?;
            self.next += 1;
            self.early_bytes -= pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
            self.has_ended = pieces.is_empty();
            self.ready.extend(pieces);
        }
    }

    /// Returns whether there are data for the application, or its end.
    pub(super) fn has_next(&self) -> bool {
        !self.ready.is_empty() || self.has_ended || self.early.contains_key(&self.next)
    }

    /// Returns the number of the first chunk that the application has not taken.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Returns whether the application has taken everything and the end.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended && self.ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::replicated::frame::chunk_header;

    fn framed(number: u64, data: &[u8]) -> Vec<u8> {
        [&chunk_header(number, data.len()), data].concat()
    }

    fn all(resequencer: &mut Resequencer) -> Vec<u8> {
        std::iter::from_fn(|| resequencer.poll()).flatten().collect()
    }

    proptest! {
        #[test]
        fn chunks_are_in_order_however_they_are_cut_and_distributed(
            chunks in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 1..50), 0_usize..3, any::<bool>()), 0..40),
            cut in 1_usize..30,
        ) {
            let mut channels = [const { Vec::new() }; 3];
            for (number, (data, channel, is_repeated)) in chunks.iter().enumerate() {
                channels[*channel].extend(framed(number as u64, data));
                if *is_repeated {
                    channels[(channel + 1) % 3].extend(framed(number as u64, data));
                }
            }
            channels[0].extend(framed(chunks.len() as u64, &[]));
            let mut resequencer = Resequencer::new(3);
            let mut received = Vec::new();
            // Channel by channel, so that most chunks are early.
            for (index, bytes) in channels.iter().enumerate().rev() {
                for piece in bytes.chunks(cut) {
                    resequencer.take(index, Bytes::copy_from_slice(piece)).expect("well formed");
                    received.extend(all(&mut resequencer));
                }
            }
            prop_assert_eq!(received, chunks.iter().flat_map(|(data, ..)| data.clone()).collect::<Vec<u8>>());
            prop_assert!(resequencer.has_ended() && resequencer.early.is_empty() && resequencer.early_bytes == 0);
            prop_assert_eq!(resequencer.next(), chunks.len() as u64 + 1);
        }

        #[test]
        fn garbage_is_refused_or_waits_within_the_window(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let mut resequencer = Resequencer::new(1);
            let _refused = resequencer.take(0, bytes.into());
            all(&mut resequencer);
        }
    }

    #[test]
    fn a_peer_that_sends_more_than_the_window_is_refused() {
        let mut resequencer = Resequencer::new(1);
        let data = vec![0; CHUNK_MAX];
        let sent = (1..).find(|number| resequencer.take(0, framed(*number, &data).into()).is_err());
        assert_eq!(sent, Some(WINDOW_PER_CHANNEL / CHUNK_MAX as u64 + 2));
        assert!(Resequencer::new(1).take(0, framed(0, &data[..9]).into()).is_ok());
        let long = [&0_u64.to_be_bytes()[..], &(CHUNK_MAX as u32 + 1).to_be_bytes()].concat();
        assert!(Resequencer::new(1).take(0, long.into()).is_err());
    }
}
