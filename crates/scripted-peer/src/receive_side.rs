//! The receiving side of a script on one path: it reads packet headers and decides when to
//! acknowledge.
//!
//! A processor that only sends calls this side and nothing else, so it hardly contends with one
//! that receives at the same time: see [`Channel`](crate::channel::Channel).

use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

use crate::link::{Common, lock};
use crate::pattern::Pattern;
use crate::script::{AckObserver, ScriptReader, ScriptedPeer};

/// Packets per acknowledgement: the most that our own send half requests from its peer.
pub const ACK_EVERY: u64 = 256;

/// Number of acknowledged packets below which acknowledgements are more frequent, so that the
/// window opens as on a real path.
const ACK_SOONER_BELOW: u64 = 4 * ACK_EVERY;

/// Bytes by which the script may be ahead of the measured end when data flow in both directions:
/// half of what a driver receives in a turn. With more, a driver that receives more than it sends
/// in a turn would have received everything before it had sent a tenth.
const AHEAD_BYTES_MAX: u64 = 1 << 20;

/// Timing of acknowledgements of arriving packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckTiming {
    /// Acknowledges when enough packets have arrived, or when the measured end has called `recv`
    /// this often since its last packet.
    WhenAsked {
        /// Calls of `recv`.
        silent_turns_max: u32,
    },
    /// Acknowledges only at an [`Item::Ack`](crate::channel::Item::Ack): no packet may overtake one
    /// that was sealed in advance with a lower number.
    InPlace,
    /// Acknowledges at the positions among the batches sealed in advance, which keep pace with the
    /// data from the measured end. Without such batches, acknowledges when enough packets have
    /// arrived or the measured end has nothing more to send. The receiving processor is woken for
    /// the acknowledgement and never has to poll: it need not be the one that sends.
    Duplex,
}

/// The first failure, as text.
#[derive(Clone, Default)]
pub(crate) struct Fault(Arc<OnceLock<String>>);

impl Fault {
    pub(crate) fn set(&self, message: String) {
        // Later failures follow from the first one.
        let _later = self.0.set(message);
    }

    pub(crate) fn get(&self) -> Option<&String> {
        self.0.get()
    }
}

pub(crate) struct ReceiveSide {
    common: Arc<Mutex<Common>>,
    fault: Fault,
    path: u16,
    datagram_size: usize,
    /// `None` during the handshake, which [`Common`] handles.
    pub(crate) observer: Option<AckObserver>,
    pub(crate) ack_timing: AckTiming,
    /// Wakes the receiving processor.
    pub(crate) waker: Option<Waker>,
    /// Calls of `recv` since the measured end last sent a packet.
    silent_turns: u32,
    /// Number of acknowledged packets.
    acked: u64,
    /// Whether the last datagram was not full: the measured end has no more to send for now.
    is_sender_idle: bool,
    /// Bytes that arrived since [`begin_round`](Self::begin_round).
    arrived_bytes: u64,
    /// Number of bytes delivered when the script stopped.
    held_at: Option<u64>,
    /// Whether the last call of `recv` found nothing.
    is_quiet: bool,
    check: Option<Check>,
}

impl ReceiveSide {
    pub(crate) fn new(
        common: Arc<Mutex<Common>>,
        fault: Fault,
        path: u16,
        ack_timing: AckTiming,
        datagram_size: usize,
    ) -> Self {
        Self {
            common,
            fault,
            path,
            datagram_size,
            observer: None,
            ack_timing,
            waker: None,
            silent_turns: 0,
            acked: 0,
            is_sender_idle: false,
            arrived_bytes: 0,
            held_at: None,
            is_quiet: false,
            check: None,
        }
    }

    // ── Called by the sending processor ──────────────────────────────────────────────────────────

    /// Processes a batch that the measured end sent.
    pub(crate) fn take(&mut self, batch: &[u8], stride: usize) {
        let Some(observer) = &mut self.observer else {
            return lock(&self.common).take(self.path, batch, stride);
        };
        if let Err(error) = observer.note_arrived(batch, stride) {
            return self.fault.set(error.to_string());
        }
        if let Some(check) = &mut self.check
            && let Err(message) = check.look(batch, stride)
        {
            self.fault.set(message);
        }
        self.silent_turns = 0;
        self.arrived_bytes += batch.len() as u64;
        self.is_sender_idle = !batch.len().is_multiple_of(self.datagram_size);
        self.answer();
    }

    /// Wakes the receiving processor if there is anything for it.
    fn answer(&mut self) {
        let wakes = match self.ack_timing {
            AckTiming::WhenAsked { .. } => true,
            AckTiming::InPlace => false,
            AckTiming::Duplex => match self.held_at {
                Some(handed_bytes) => self.lets_pass(handed_bytes),
                None => self.is_quiet && self.is_due(),
            },
        };
        if wakes {
            self.is_quiet = false;
            self.wake();
        }
    }

    // ── Called by the receiving processor ────────────────────────────────────────────────────────

    /// Returns whether more may be delivered after this many bytes. If not, the receiving processor
    /// is woken when it may.
    pub(crate) fn lets_pass(&mut self, handed_bytes: u64) -> bool {
        let is_open = self.ack_timing != AckTiming::Duplex
            || handed_bytes <= self.arrived_bytes + AHEAD_BYTES_MAX
            // A measured end that waits for an acknowledgement gets one.
            || self.is_due();
        self.held_at = (!is_open).then_some(handed_bytes);
        is_open
    }

    /// Returns whether an acknowledgement is due, with nothing else to send. If not, the receiving
    /// processor is woken to ask again.
    pub(crate) fn is_answer_due(&mut self) -> bool {
        match self.ack_timing {
            AckTiming::InPlace => false,
            AckTiming::WhenAsked { silent_turns_max } => self.is_due_when_asked(silent_turns_max),
            AckTiming::Duplex => {
                self.is_quiet = !self.is_due();
                !self.is_quiet
            }
        }
    }

    fn is_due_when_asked(&mut self, silent_turns_max: u32) -> bool {
        let waiting = self.waiting();
        if waiting == 0 {
            return false;
        }
        let has_stalled = self.silent_turns >= silent_turns_max;
        self.silent_turns += 1;
        let is_due = has_stalled || waiting >= self.enough();
        if !is_due {
            self.wake();
        }
        is_due
    }

    /// Passes the packets noted since the last call to the script; returns their number.
    pub(crate) fn report_to(&mut self, script: &mut ScriptedPeer) -> u64 {
        let Some(observer) = &mut self.observer else { return 0 };
        let count = script.take_observed(observer);
        self.acked += count;
        self.is_sender_idle = false;
        count
    }

    // ── For the measurement ──────────────────────────────────────────────────────────────────────

    /// Begins a round, in which bytes are counted from zero.
    pub(crate) fn begin_round(&mut self) {
        (self.arrived_bytes, self.held_at) = (0, None);
    }

    /// Acknowledges the packets that arrived, in case the measured end waits for it.
    pub(crate) fn acknowledge_now(&mut self) {
        if self.waiting() > 0 {
            self.is_sender_idle = true;
            self.wake();
        }
    }

    /// Opens all packets sent from now on and compares them with the pattern.
    pub(crate) fn begin_check(&mut self, reader: ScriptReader, pattern: Pattern) {
        self.check = Some(Check { reader, pattern, next: 0, has_ended: false, copy: Vec::new() });
    }

    /// Ends the check; returns the length of the stream sent meanwhile.
    ///
    /// # Errors
    /// Fails if the stream has not ended.
    pub(crate) fn end_check(&mut self) -> Result<u64, String> {
        let check = self.check.take().ok_or("nothing was checked")?;
        if check.has_ended { Ok(check.next) } else { Err("the end of what was written was not sent".to_owned()) }
    }

    /// Returns the state as text.
    pub(crate) fn describe(&self) -> String {
        let (waiting, arrived) = (self.waiting(), self.arrived_bytes);
        format!("{arrived} bytes arrived, {waiting} packets to acknowledge, held at {:?}", self.held_at)
    }

    // ── Inside ───────────────────────────────────────────────────────────────────────────────────

    fn waiting(&self) -> u64 {
        self.observer.as_ref().map_or(0, AckObserver::unacknowledged)
    }

    /// Returns the number of packets that suffice for an acknowledgement.
    fn enough(&self) -> u64 {
        let sooner = if self.acked < ACK_SOONER_BELOW { 2 + self.acked / 4 } else { ACK_EVERY };
        sooner.min(ACK_EVERY)
    }

    fn is_due(&self) -> bool {
        let waiting = self.waiting();
        waiting > 0 && (self.is_sender_idle || waiting >= self.enough())
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

/// Compares every byte sent by the measured end.
struct Check {
    reader: ScriptReader,
    pattern: Pattern,
    /// Bytes of the stream that arrived without a gap.
    next: u64,
    has_ended: bool,
    /// Copy of the packets, because they are opened in place and the buffer belongs to the sender.
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
