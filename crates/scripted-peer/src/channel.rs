//! One path between the measured end and its script.
//!
//! ```text
//!   measured end sends    ──▶ ReceiveSide: notes which packets arrive
//!                                  │ acknowledgements, one for some 256 packets
//!   measured end receives ◀── SendSide: batches that were sealed in advance
//! ```
//!
//! A channel has no thread, no queue between threads and no system call: its work is done inside
//! the `send` and `recv` of the measured end's socket. Two processors may call these at the same
//! time, so each side has a separate lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use quic::{Plan, seal};

use crate::link::{Common, lock};
use crate::pattern::Pattern;
use crate::receive_side::{AckTiming, Fault, ReceiveSide};
use crate::script::ScriptedPeer;

/// Number of calls of `recv` without a packet on one of several paths after which the packets that
/// arrived there are acknowledged. The path's processor calls it every microsecond while the driver
/// plans its next batch; one acknowledgement per batch would cost the driver time. The calls take
/// far less time than any timer.
const IDLE_RECV_CALLS_MAX: u32 = 32;

/// A path: the far end of one socket of the measured end.
pub struct Channel {
    send_side: Mutex<SendSide>,
    /// Lock order: after `send_side`, never before.
    receive_side: Arc<Mutex<ReceiveSide>>,
    fault: Fault,
    /// Number of full-size datagrams that the measured end sent: the data.
    sent_full: AtomicU64,
    pub(crate) path: u16,
    pub(crate) datagram_size: usize,
}

/// Next item that the script sends.
pub enum Item {
    /// A sealed batch.
    Batch(Vec<u8>),
    /// An acknowledgement with this packet number; a PING if there is nothing to acknowledge.
    Ack(u64),
}

/// The sending side of the script.
pub(crate) struct SendSide {
    common: Arc<Mutex<Common>>,
    receive_side: Arc<Mutex<ReceiveSide>>,
    fault: Fault,
    path: u16,
    /// `None` during the handshake, which [`Common`] handles.
    script: Option<Box<ScriptedPeer>>,
    /// Batches sealed in advance, and the positions of acknowledgements among them.
    items: VecDeque<Item>,
    /// Whether the next item waits until the measured end has sent more.
    is_held: bool,
    /// Bytes of items delivered since the last call of [`Channel::feed`].
    handed_bytes: u64,
    /// Memory of delivered batches.
    spare: Vec<Vec<u8>>,
    waker: Option<Waker>,
    plan: Plan,
    sealed: Vec<u8>,
}

impl Channel {
    /// Creates channel number `index` of `paths`.
    pub(crate) fn new(common: Arc<Mutex<Common>>, path: u16, paths: u16, datagram_size: usize) -> Arc<Self> {
        let ack_timing = AckTiming::WhenAsked { silent_turns_max: if paths == 1 { 1 } else { IDLE_RECV_CALLS_MAX } };
        let fault = Fault::default();
        let receive_side = ReceiveSide::new(Arc::clone(&common), fault.clone(), path, ack_timing, datagram_size);
        let receive_side = Arc::new(Mutex::new(receive_side));
        let send_side = SendSide {
            common,
            receive_side: Arc::clone(&receive_side),
            fault: fault.clone(),
            path,
            script: None,
            items: VecDeque::new(),
            is_held: false,
            handed_bytes: 0,
            spare: Vec::new(),
            waker: None,
            plan: Plan::new(),
            sealed: Vec::new(),
        };
        let send_side = Mutex::new(send_side);
        Arc::new(Self { send_side, receive_side, fault, sent_full: AtomicU64::new(0), path, datagram_size })
    }

    pub(crate) fn send_side(&self) -> MutexGuard<'_, SendSide> {
        lock(&self.send_side)
    }

    pub(crate) fn receive_side(&self) -> MutexGuard<'_, ReceiveSide> {
        lock(&self.receive_side)
    }

    /// Returns the channel's state as text, for error messages about a stall.
    pub fn describe(&self) -> String {
        let (left, handed) = {
            let send_side = self.send_side();
            (send_side.items.len(), send_side.handed_bytes)
        };
        format!("{left} batches left, {handed} bytes handed out, {}", self.receive_side().describe())
    }

    /// Returns the first failure.
    pub fn failure(&self) -> Option<String> {
        self.fault.get().cloned()
    }

    // ── The measured end ─────────────────────────────────────────────────────────────────────────

    /// Processes a batch that the measured end sent.
    pub(crate) fn take(&self, batch: &[u8], stride: usize) {
        self.receive_side().take(batch, stride);
        if stride == self.datagram_size {
            // Only one thread sends, so nothing is lost between the two locks.
            let sent = self.sent_full.load(Ordering::Relaxed);
            self.sent_full.store(sent + (batch.len() / stride) as u64, Ordering::Relaxed);
        }
    }

    /// Wakes `waker` when there is something to receive.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        let mut send_side = self.send_side();
        send_side.waker = Some(waker.clone());
        self.receive_side().waker = Some(waker.clone());
        lock(&send_side.common).set_waker(self.path, waker);
        send_side.wake();
    }

    // ── For the measurement ──────────────────────────────────────────────────────────────────────

    /// Replaces the peer with a script after the handshake. The caller holds both locks, so that
    /// every call finds either the peer or the script.
    pub(crate) fn begin(send_side: &mut SendSide, receive_side: &mut ReceiveSide, mut script: ScriptedPeer) {
        receive_side.observer = Some(script.detach_observer());
        send_side.script = Some(Box::new(script));
    }

    /// Returns the number of data packets that the measured end has sent.
    pub fn packets_sent(&self) -> u64 {
        self.sent_full.load(Ordering::Relaxed)
    }

    /// Calls `write` with the script, to make plans.
    ///
    /// # Errors
    /// Returns the first failure.
    pub fn with_script<T>(&self, write: impl FnOnce(&mut ScriptedPeer) -> T) -> Result<T, String> {
        self.send_side().script().map(write)
    }

    /// Sets the time at which packets that arrive from now on are acknowledged.
    pub fn set_ack_timing(&self, ack_timing: AckTiming) {
        self.receive_side().ack_timing = ack_timing;
    }

    /// Appends to the items that the script sends; it sends as fast as the measured end receives.
    pub fn feed(&self, items: Vec<Item>) {
        let mut send_side = self.send_side();
        send_side.items.extend(items);
        send_side.handed_bytes = 0;
        self.receive_side().begin_round();
        send_side.wake();
    }

    /// Takes the memory of delivered batches, for reuse.
    pub fn take_spare(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.send_side().spare)
    }

    /// Opens all packets sent from now on and compares them with the pattern. Keys must not have
    /// been updated.
    ///
    /// # Errors
    /// Returns the first failure.
    pub fn begin_check(&self, pattern: &Pattern) -> Result<(), String> {
        let mut send_side = self.send_side();
        let common = Arc::clone(&send_side.common);
        let mut receive_side = self.receive_side();
        let script = send_side.script()?;
        // The reader decodes packet numbers relative to the last one noted.
        receive_side.report_to(script);
        let reader = lock(&common).keys().and_then(|keys| keys.reader(script));
        receive_side.begin_check(reader.ok_or("keys were updated too early")?, pattern.clone());
        Ok(())
    }

    /// Ends the check; returns the length of the stream sent meanwhile.
    ///
    /// # Errors
    /// Fails if the stream has not ended.
    pub fn end_check(&self) -> Result<u64, String> {
        self.receive_side().end_check()
    }

    /// Acknowledges the packets that arrived, in case the measured end waits for it.
    pub fn acknowledge_now(&self) {
        self.receive_side().acknowledge_now();
    }
}

impl SendSide {
    pub(crate) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Returns the script.
    ///
    /// # Errors
    /// Returns the first failure.
    pub(crate) fn script(&mut self) -> Result<&mut ScriptedPeer, String> {
        match (self.fault.get(), &mut self.script) {
            (Some(failure), _) => Err(failure.clone()),
            (None, Some(script)) => Ok(script),
            (None, None) => Err("the handshake is not over".to_owned()),
        }
    }

    /// Returns whether an item can be delivered at once.
    pub(crate) fn has_more(&self) -> bool {
        !self.items.is_empty() && !self.is_held
    }

    /// Writes the next batch into `buffer`. Returns its length and the size of its datagrams (the
    /// full size for data), or `None`.
    pub(crate) fn hand_out(&mut self, buffer: &mut [u8], size: usize) -> Option<(usize, usize)> {
        if self.script.is_none() {
            let (batch, stride) = lock(&self.common).pop_outgoing(self.path)?;
            return Some((self.copy(&batch, buffer), stride));
        }
        let number = match self.items.front() {
            Some(Item::Batch(_)) => return self.hand_out_batch(buffer).map(|len| (len, size)),
            Some(Item::Ack(number)) => Some(*number),
            None => None,
        };
        let mut receive_side = lock(&self.receive_side);
        let (passes, answers) = match number {
            Some(_) => (receive_side.lets_pass(self.handed_bytes), true),
            None => (true, receive_side.is_answer_due()),
        };
        drop(receive_side);
        self.is_held = !passes;
        if !passes || !answers {
            return None;
        }
        if number.is_some() {
            self.items.pop_front();
        }
        if !self.seal_ack(number) {
            return None;
        }
        let sealed = std::mem::take(&mut self.sealed);
        let len = self.copy(&sealed, buffer);
        self.sealed = sealed;
        Some((len, len.max(1)))
    }

    fn hand_out_batch(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let Some(Item::Batch(batch)) = self.items.pop_front() else { return None };
        let len = self.copy(&batch, buffer);
        self.handed_bytes += len as u64;
        self.spare.push(batch);
        Some(len)
    }

    /// Seals an acknowledgement into `self.sealed`; returns false if there is nothing to
    /// acknowledge and no packet number to use.
    fn seal_ack(&mut self, number: Option<u64>) -> bool {
        let Some(script) = &mut self.script else { return false };
        lock(&self.receive_side).report_to(script);
        if script.lacks_keys() {
            if self.items.iter().any(|item| matches!(item, Item::Batch(_))) {
                // RFC 9001, section 6.4: packets sealed in advance have the old keys and higher
                // packet numbers.
                self.fault.set("the measured end updated its keys before the script did".to_owned());
            }
            if let Some(keys) = lock(&self.common).keys() {
                keys.renew(script);
            }
        }
        match number {
            Some(number) => script.plan_ack_as(number, &mut self.plan),
            None if script.plan_ack(&mut self.plan) => {}
            None => return false,
        }
        seal(&self.plan, &mut self.sealed);
        true
    }

    fn copy(&mut self, batch: &[u8], buffer: &mut [u8]) -> usize {
        if batch.len() > buffer.len() {
            self.fault.set("a receive buffer is smaller than a batch".to_owned());
            return 0;
        }
        buffer[..batch.len()].copy_from_slice(batch);
        batch.len()
    }
}
