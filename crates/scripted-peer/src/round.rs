//! The data that the script sends in a round, a part of a run: planned first, sealed in advance
//! on all processors, then sent.

use bytes::Bytes;
use quic::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX, Plan, StreamId, seal};
use units::Duration;

use crate::channel::{Channel, Item};
use crate::receive_side::ACK_EVERY;
use crate::script::ScriptedPeer;

/// Bytes of stream data that the script sends in a round, on all paths together. With less, the
/// beginning and the end distort the result: the pipeline fills and drains within about ten
/// batches. With more, every batch has left the caches before it is sent.
pub const ROUND_BYTES: u64 = 64 << 20;

/// Time limit of a round, after which it counts as stalled.
pub const ROUND_TIME_MAX: Duration = Duration::from_secs(10);

/// The longest delay of the receiver's acknowledgements, in microseconds: the shortest it supports.
const ACK_DELAY_US: u64 = 1000;

/// A step of a round.
pub enum Step {
    /// A batch of stream data.
    Data(Box<Plan>),
    /// An acknowledgement with this packet number.
    Ack(u64),
}

/// Returns the number of datagrams of `size` bytes in a batch.
pub fn batch_len(size: usize) -> usize {
    (PLAN_BYTES_MAX / size).min(PLAN_DATAGRAMS_MAX)
}

/// Position and parameters of a stream being sent.
pub struct Writing<'a> {
    /// The stream.
    pub id: StreamId,
    /// Offset of the next byte; advances.
    pub offset: &'a mut u64,
    /// Bytes, repeated endlessly.
    pub pattern: &'a Bytes,
    /// Size of a datagram in bytes of UDP payload.
    pub size: usize,
    /// Batches between two packet numbers that are reserved for the script's own acknowledgements.
    pub batches_per_ack: usize,
}

impl Writing<'_> {
    /// Plans at least this many more bytes.
    pub fn plan(&mut self, script: &mut ScriptedPeer, bytes: u64) -> Vec<Step> {
        let (batch, end) = (batch_len(self.size), *self.offset + bytes);
        let (mut steps, mut batches) = (Vec::new(), 0);
        while *self.offset < end {
            if batches % self.batches_per_ack == 0 {
                steps.push(Step::Ack(script.reserve_number()));
            }
            let mut plan = Box::new(Plan::new());
            *self.offset += script.plan_data(self.id, *self.offset, batch, self.size, self.pattern, &mut plan);
            steps.push(Step::Data(plan));
            batches += 1;
        }
        steps
    }
}

impl Step {
    /// Returns the number of its data packets.
    pub fn packets(&self) -> u64 {
        match self {
            Self::Data(plan) => plan.packet_count() as u64,
            Self::Ack(_) => 0,
        }
    }

    fn seal(self, spare: &mut Vec<Vec<u8>>) -> Item {
        match self {
            Self::Ack(number) => Item::Ack(number),
            Self::Data(plan) => {
                let mut sealed = spare.pop().unwrap_or_default();
                seal(&plan, &mut sealed);
                Item::Batch(sealed)
            }
        }
    }
}

/// Seals a round on all processors, into reused memory.
pub fn seal_all(steps: Vec<Step>, mut spare: Vec<Vec<u8>>) -> Vec<Item> {
    let threads = net::processors::count();
    let share = steps.len().div_ceil(threads).max(1);
    let mut steps = steps.into_iter();
    std::thread::scope(|scope| {
        let mut workers = Vec::with_capacity(threads);
        for _ in 0..threads {
            let part: Vec<Step> = steps.by_ref().take(share).collect();
            let mut spare = spare.split_off(spare.len().saturating_sub(part.len()));
            workers.push(scope.spawn(move || part.into_iter().map(|step| step.seal(&mut spare)).collect::<Vec<_>>()));
        }
        let sealed = workers.into_iter().map(|worker| worker.join().expect("sealing does not panic"));
        sealed.flatten().collect()
    })
}

/// Requests that the measured end acknowledge as rarely as our own send half would.
///
/// # Errors
/// Returns the first failure.
pub fn request_few_acks(channel: &Channel) -> Result<(), String> {
    let mut plan = Plan::new();
    channel.with_script(|script| script.plan_ack_frequency(ACK_EVERY, ACK_DELAY_US, &mut plan))?;
    let mut sealed = Vec::new();
    seal(&plan, &mut sealed);
    channel.feed(vec![Item::Batch(sealed)]);
    Ok(())
}
