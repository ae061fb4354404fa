//! What the script hears of one path: packets, by their headers alone, and when that calls for an answer.
//!
//! A processor that only sends comes here and nowhere else, so that one that receives meanwhile hardly meets it: see
//! [`Channel`](super::channel::Channel).

use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

use quic::{ScriptReader, ScriptedEar, ScriptedPeer};

use super::link::{Common, lock};
use super::pattern::Pattern;

/// Packets that are acknowledged at a time: what our own send half asks its peer for at most.
pub(crate) const ACK_EVERY: u64 = 256;

/// Until so many packets were acknowledged, some are acknowledged sooner: the window opens as it does on a real path.
const ACK_SOONER_BELOW: u64 = 4 * ACK_EVERY;

/// What is handed out may be so far ahead of what was sent, in bytes, when data go both ways: half of what a driver takes in at
/// one turn. More, and a driver that takes in more than it sends in a turn would have received everything before it has sent a tenth.
const AHEAD_BYTES_MAX: u64 = 1 << 20;

/// When what has arrived is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// When it is enough, or when the owner has asked so many times since something arrived.
    WhenAsked { patience: u32 },
    /// Only where an [`Item::Ack`](super::channel::Item::Ack) is handed out: numbers of what is sealed in advance must not be
    /// overtaken.
    InPlace,
    /// In place while there is something sealed in advance, which is handed out in step with what is sent. Otherwise when it is
    /// enough or the sender has run dry. The owner is woken for it and never has to ask: it may be another processor than the one
    /// that sends.
    BothWays,
}

/// What went wrong first, in words.
#[derive(Clone, Default)]
pub(crate) struct Fault(Arc<OnceLock<String>>);

impl Fault {
    pub(crate) fn set(&self, words: String) {
        // What follows from the first is of no interest.
        let _later = self.0.set(words);
    }

    pub(crate) fn get(&self) -> Option<&String> {
        self.0.get()
    }
}

pub(crate) struct Hearing {
    common: Arc<Mutex<Common>>,
    fault: Fault,
    path: u16,
    datagram_size: usize,
    /// None during the handshake, which is for [`Common`].
    pub(crate) ear: Option<ScriptedEar>,
    pub(crate) manner: Manner,
    /// Of the owner, that is of whoever receives.
    pub(crate) waker: Option<Waker>,
    /// How often the script was asked for what it has to say since something was sent.
    silent_turns: u32,
    /// Packets that were acknowledged.
    acked: u64,
    /// Something shorter than a full datagram came last: the sender has no more for the moment.
    has_run_dry: bool,
    /// Bytes that arrived since [`begin_stretch`](Self::begin_stretch).
    arrived_bytes: u64,
    /// The owner was refused when so many bytes were handed out.
    held_at: Option<u64>,
    /// The owner found nothing to receive.
    is_quiet: bool,
    check: Option<Check>,
}

impl Hearing {
    pub(super) fn new(
        common: Arc<Mutex<Common>>,
        fault: Fault,
        path: u16,
        manner: Manner,
        datagram_size: usize,
    ) -> Self {
        Self {
            common,
            fault,
            path,
            datagram_size,
            ear: None,
            manner,
            waker: None,
            silent_turns: 0,
            acked: 0,
            has_run_dry: false,
            arrived_bytes: 0,
            held_at: None,
            is_quiet: false,
            check: None,
        }
    }

    // ── The processor that sends ─────────────────────────────────────────────────────────────────────────────────────

    /// Takes what was sent.
    pub(super) fn take(&mut self, batch: &[u8], stride: usize) {
        let Some(ear) = &mut self.ear else {
            return lock(&self.common).take(self.path, batch, stride);
        };
        if let Err(error) = ear.note_arrived(batch, stride) {
            return self.fault.set(error.to_string());
        }
        if let Some(check) = &mut self.check
            && let Err(words) = check.look(batch, stride)
        {
            self.fault.set(words);
        }
        self.silent_turns = 0;
        self.arrived_bytes += batch.len() as u64;
        self.has_run_dry = !batch.len().is_multiple_of(self.datagram_size);
        self.answer();
    }

    /// Wakes the owner if there is something new for it.
    fn answer(&mut self) {
        let wakes = match self.manner {
            Manner::WhenAsked { .. } => true,
            Manner::InPlace => false,
            Manner::BothWays => match self.held_at {
                Some(handed_bytes) => self.lets_pass(handed_bytes),
                None => self.is_quiet && self.is_due(),
            },
        };
        if wakes {
            self.is_quiet = false;
            self.wake();
        }
    }

    // ── The processor that receives ──────────────────────────────────────────────────────────────────────────────────

    /// Whether more that was sealed in advance may follow so many bytes. If not, the owner is woken when it may.
    pub(super) fn lets_pass(&mut self, handed_bytes: u64) -> bool {
        let is_open = self.manner != Manner::BothWays
            || handed_bytes <= self.arrived_bytes + AHEAD_BYTES_MAX
            // A sender that waits for an acknowledgement gets it, whatever follows.
            || self.is_due();
        self.held_at = (!is_open).then_some(handed_bytes);
        is_open
    }

    /// Whether an acknowledgement is due now that nothing else is to be said. One that is not due yet makes the owner ask again,
    /// or will wake it.
    pub(super) fn is_answer_due(&mut self) -> bool {
        match self.manner {
            Manner::InPlace => false,
            Manner::WhenAsked { patience } => self.is_due_when_asked(patience),
            Manner::BothWays => {
                self.is_quiet = !self.is_due();
                !self.is_quiet
            }
        }
    }

    fn is_due_when_asked(&mut self, patience: u32) -> bool {
        let waiting = self.waiting();
        if waiting == 0 {
            return false;
        }
        let has_stalled = self.silent_turns >= patience;
        self.silent_turns += 1;
        let is_due = has_stalled || waiting >= self.enough();
        if !is_due {
            self.wake();
        }
        is_due
    }

    /// Tells the script what was heard since the last time; how many packets that is.
    pub(super) fn tell(&mut self, script: &mut ScriptedPeer) -> u64 {
        let Some(ear) = &mut self.ear else { return 0 };
        let count = script.hear(ear);
        self.acked += count;
        self.has_run_dry = false;
        count
    }

    // ── Whoever conducts the measurement ─────────────────────────────────────────────────────────────────────────────

    /// What is handed out is counted anew.
    pub(super) fn begin_stretch(&mut self) {
        (self.arrived_bytes, self.held_at) = (0, None);
    }

    /// Has what has arrived acknowledged, should the sender wait for it.
    pub(super) fn hurry(&mut self) {
        if self.waiting() > 0 {
            self.has_run_dry = true;
            self.wake();
        }
    }

    /// From now on everything that is sent is opened and compared with this, stream by stream.
    pub(super) fn begin_check(&mut self, reader: ScriptReader, pattern: Pattern) {
        self.check = Some(Check { reader, pattern, next: 0, has_ended: false, copy: Vec::new() });
    }

    /// Ends the check; says how long the stream was that was sent meanwhile.
    ///
    /// # Errors
    /// In words, if it has not ended.
    pub(super) fn end_check(&mut self) -> Result<u64, String> {
        let check = self.check.take().ok_or("nothing was checked")?;
        if check.has_ended { Ok(check.next) } else { Err("the end of what was written was not sent".to_owned()) }
    }

    /// What it waits for, in words.
    pub(super) fn describe(&self) -> String {
        let (waiting, arrived) = (self.waiting(), self.arrived_bytes);
        format!("{arrived} bytes arrived, {waiting} packets to acknowledge, held at {:?}", self.held_at)
    }

    // ── Inside ───────────────────────────────────────────────────────────────────────────────────────────────────────

    fn waiting(&self) -> u64 {
        self.ear.as_ref().map_or(0, ScriptedEar::unacknowledged)
    }

    /// So many packets are worth an acknowledgement.
    fn enough(&self) -> u64 {
        let sooner = if self.acked < ACK_SOONER_BELOW { 2 + self.acked / 4 } else { ACK_EVERY };
        sooner.min(ACK_EVERY)
    }

    fn is_due(&self) -> bool {
        let waiting = self.waiting();
        waiting > 0 && (self.has_run_dry || waiting >= self.enough())
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

/// Looks at every byte that is sent.
struct Check {
    reader: ScriptReader,
    pattern: Pattern,
    /// All before was there.
    next: u64,
    has_ended: bool,
    /// Opening is done in place, and what is sent is not ours.
    copy: Vec<u8>,
}

impl Check {
    fn look(&mut self, batch: &[u8], stride: usize) -> Result<(), String> {
        self.copy.clear();
        self.copy.extend_from_slice(batch);
        let (pattern, next, has_ended) = (&self.pattern, &mut self.next, &mut self.has_ended);
        let mut wrong = None;
        let read = self.reader.read(&mut self.copy, stride, |_, offset, bytes, is_last| {
            if offset > *next || !pattern.matches(offset, bytes) {
                wrong.get_or_insert((*next, offset));
            }
            *next = (*next).max(offset + bytes.len() as u64);
            *has_ended |= is_last;
        });
        read.map_err(|error| error.to_string())?;
        match wrong {
            Some((next, at)) => {
                Err(format!("what was sent at {at} of the stream, after {next}, is not what was written"))
            }
            None => Ok(()),
        }
    }
}
