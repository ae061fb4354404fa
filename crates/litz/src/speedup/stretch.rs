//! What the script says in a stretch of a run: decided first, sealed in advance on all processors, then handed out.

use bytes::Bytes;
use quic::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX, Plan, ScriptedPeer, StreamId, seal};
use units::Duration;

use super::channel::{Channel, Item};
use super::hearing::ACK_EVERY;

/// Bytes of stream data that the script sends in a stretch, all paths together. Less, and its beginning and end show: the pipeline
/// fills and drains within some ten batches. More, and every batch has left the caches before it is handed out.
pub(super) const STRETCH_BYTES: u64 = 64 << 20;

/// A stretch that takes longer has come to a stop.
pub(super) const STRETCH_TIME_MAX: Duration = Duration::from_secs(10);

/// How long the receiver may hold back an acknowledgement: as short as it offers, in microseconds.
const ACK_DELAY_US: u64 = 1000;

/// A step of a stretch.
pub(super) enum Step {
    Data(Box<Plan>),
    /// Here an acknowledgement goes, under this number.
    Ack(u64),
}

/// How many datagrams of `size` bytes a batch takes.
pub(super) fn batch_len(size: usize) -> usize {
    (PLAN_BYTES_MAX / size).min(PLAN_DATAGRAMS_MAX)
}

/// A stream, and what is said of it.
pub(super) struct Writing<'a> {
    pub(super) id: StreamId,
    /// Of the next byte; moves on.
    pub(super) offset: &'a mut u64,
    pub(super) pattern: &'a Bytes,
    /// Of a datagram, in bytes of UDP payload.
    pub(super) size: usize,
    /// Batches between two numbers that are kept for the script's own acknowledgements.
    pub(super) batches_per_ack: usize,
}

impl Writing<'_> {
    /// Decides how at least so many bytes more are said.
    pub(super) fn plan(&mut self, script: &mut ScriptedPeer, bytes: u64) -> Vec<Step> {
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
    pub(super) fn packets(&self) -> u64 {
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

/// Seals a stretch on all processors, into memory that was used before.
pub(super) fn seal_all(steps: Vec<Step>, mut spare: Vec<Vec<u8>>) -> Vec<Item> {
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

/// Asks the measured end to acknowledge as seldom as our own send half would ask it.
///
/// # Errors
/// What went wrong so far, in words.
pub(super) fn ask_for_few_acks(channel: &Channel) -> Result<(), String> {
    let mut plan = Plan::new();
    channel.with_script(|script| script.plan_ack_frequency(ACK_EVERY, ACK_DELAY_US, &mut plan))?;
    let mut sealed = Vec::new();
    seal(&plan, &mut sealed);
    channel.feed(vec![Item::Batch(sealed)]);
    Ok(())
}
