//! What the scripted peer of QUIC sends: each path has its own stream, so that no data waits for
//! another path.

use bytes::Bytes;
use litz::StreamId;
use quic::{Dir, Side as QuicSide};
use scripted_peer::channel::{Channel, Item};
use scripted_peer::receive_side::AckTiming;
use scripted_peer::round::{ROUND_BYTES, Step, Writing, request_few_acks, seal_all};

use super::end::{Reader, ReceiveEnd, Round, Source};
use super::failure::Failure;
use super::run::CHUNK_LEN;
use super::streams::Streams;
use super::test_bed::TestBed;

/// Batches between two packet numbers reserved for the scripted peer's acknowledgements, so that
/// the receiver gets answers.
const BATCHES_PER_ACK: usize = 64;

/// Packets on all paths before a key update: the value of the library's send half.
const KEY_UPDATE_EVERY: u64 = 1 << 21;

impl ReceiveEnd for TestBed {
    fn reader(&self) -> Result<Reader<'_>, String> {
        let mut streams = Streams::accept(&self.connection, self.link.channels.len() as u16)?;
        Ok(Box::new(move || match streams.read_strided() {
            Ok(Some(chunk)) => Ok(chunk.len()),
            Ok(None) => Err("the scripted peer ended a stream".to_owned()),
            Err(error) => Err(error.to_string()),
        }))
    }

    fn unauthentic(&self) -> u64 {
        self.connection.stats().receive.packets_unauthentic
    }

    fn source(&self) -> Result<Box<dyn Source<'_> + '_>, Failure> {
        let channels = &self.link.channels;
        channels.iter().for_each(|channel| channel.set_ack_timing(AckTiming::InPlace));
        // One path is the send side of all.
        request_few_acks(&channels[0]).map_err(Failure::Error)?;
        let (pattern, offsets) = (Bytes::from(vec![7; CHUNK_LEN]), vec![0; channels.len()]);
        Ok(Box::new(QuicSource { test_bed: self, pattern, offsets, sealed_in_phase: 0 }))
    }
}

struct QuicSource<'a> {
    test_bed: &'a TestBed,
    pattern: Bytes,
    /// Bytes planned so far of each path's stream.
    offsets: Vec<u64>,
    /// Packets since the last key update.
    sealed_in_phase: u64,
}

impl<'a> Source<'a> for QuicSource<'a> {
    fn make(&mut self) -> Result<Round<'a>, Failure> {
        let link = &self.test_bed.link;
        let from: u64 = self.offsets.iter().sum();
        if self.sealed_in_phase >= KEY_UPDATE_EVERY && link.update_keys().map_err(Failure::Error)? {
            self.sealed_in_phase = 0;
        }
        let (mut packets, mut all) = (0, Vec::<(&Channel, Vec<Item>)>::with_capacity(link.channels.len()));
        for (path, channel) in link.channels.iter().enumerate() {
            let steps = self.plan(path, channel).map_err(Failure::Error)?;
            packets += steps.iter().map(Step::packets).sum::<u64>();
            all.push((channel, seal_all(steps, channel.take_spare())));
        }
        self.sealed_in_phase += packets;
        let bytes = self.offsets.iter().sum::<u64>() - from;
        let feed = Box::new(move || all.into_iter().for_each(|(channel, items)| channel.feed(items)));
        Ok(Round { packets, bytes, measured_bytes: bytes, feed })
    }
}

impl QuicSource<'_> {
    /// Plans a round on one path; all paths have the same amount.
    fn plan(&mut self, path: usize, channel: &Channel) -> Result<Vec<Step>, String> {
        let share = ROUND_BYTES / self.offsets.len() as u64;
        let mut writing = Writing {
            id: StreamId::new(QuicSide::Server, Dir::Uni, path as u64),
            offset: &mut self.offsets[path],
            pattern: &self.pattern,
            size: self.test_bed.datagram_size,
            batches_per_ack: BATCHES_PER_ACK,
        };
        channel.with_script(|script| writing.plan(script, share))
    }
}
