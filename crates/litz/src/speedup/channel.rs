//! The script of one path, for the socket of the measured end and for whoever conducts the measurement.
//!
//! ```text
//!   processor that sends ──▶ Hearing: which packets          Said: what is sealed in advance ──▶ processor that receives
//!                                 └──────── acknowledgements, once in some 256 packets ──▲
//! ```
//!
//! It has no thread, no queue between threads and no system call; its work is done inside `send` and `recv`. The two may be called
//! by two processors at the same time, so what is heard and what is said have a lock each.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use quic::{Plan, ScriptedPeer, seal};

use super::hearing::{Fault, Hearing, Manner};
use super::link::{Common, lock};
use super::pattern::Pattern;

/// Turns without a packet on one of several paths, until what has arrived there is acknowledged all the same. Its processor does
/// turns of less than a microsecond while the driver plans its next batch; acknowledging each batch for that would make work for the
/// driver. Far less than any timer takes.
const PATIENCE: u32 = 32;

/// The other end of one socket, for both its owner and whoever conducts the measurement.
pub(crate) struct Channel {
    said: Mutex<Said>,
    /// Locked after `said`, never before.
    heard: Arc<Mutex<Hearing>>,
    fault: Fault,
    /// Datagrams of the full size that the measured end sent: the data.
    sent_full: AtomicU64,
    pub(crate) path: u16,
    pub(crate) datagram_size: usize,
}

/// What the script hands out next.
pub(crate) enum Item {
    /// A sealed batch.
    Batch(Vec<u8>),
    /// Here an acknowledgement goes, under this number; a PING if there is nothing to acknowledge.
    Ack(u64),
}

/// What the script has to say.
pub(crate) struct Said {
    common: Arc<Mutex<Common>>,
    heard: Arc<Mutex<Hearing>>,
    fault: Fault,
    path: u16,
    /// None during the handshake, which is for [`Common`].
    script: Option<Box<ScriptedPeer>>,
    /// Sealed in advance.
    items: VecDeque<Item>,
    /// The next item waits until more is sent.
    is_held: bool,
    /// Bytes of items handed out since the last of them were fed.
    handed_bytes: u64,
    /// Memory of batches that were handed out.
    spare: Vec<Vec<u8>>,
    waker: Option<Waker>,
    plan: Plan,
    sealed: Vec<u8>,
}

impl Channel {
    /// One of so many paths.
    pub(crate) fn new(common: Arc<Mutex<Common>>, path: u16, paths: u16, datagram_size: usize) -> Arc<Self> {
        let manner = Manner::WhenAsked { patience: if paths == 1 { 1 } else { PATIENCE } };
        let fault = Fault::default();
        let heard = Hearing::new(Arc::clone(&common), fault.clone(), path, manner, datagram_size);
        let heard = Arc::new(Mutex::new(heard));
        let said = Said {
            common,
            heard: Arc::clone(&heard),
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
        let said = Mutex::new(said);
        Arc::new(Self { said, heard, fault, sent_full: AtomicU64::new(0), path, datagram_size })
    }

    pub(crate) fn said(&self) -> MutexGuard<'_, Said> {
        lock(&self.said)
    }

    pub(crate) fn heard(&self) -> MutexGuard<'_, Hearing> {
        lock(&self.heard)
    }

    /// What it waits for, in words.
    pub(crate) fn describe(&self) -> String {
        let (left, handed) = {
            let said = self.said();
            (said.items.len(), said.handed_bytes)
        };
        format!("{left} batches left, {handed} bytes handed out, {}", self.heard().describe())
    }

    /// What went wrong first, in words.
    pub(crate) fn failure(&self) -> Option<String> {
        self.fault.get().cloned()
    }

    // ── The measured end ─────────────────────────────────────────────────────────────────────────────────────────────

    /// Takes what was sent.
    pub(super) fn take(&self, batch: &[u8], stride: usize) {
        self.heard().take(batch, stride);
        if stride == self.datagram_size {
            // One thread sends, so there is nothing to be lost between the two.
            let sent = self.sent_full.load(Ordering::Relaxed);
            self.sent_full.store(sent + (batch.len() / stride) as u64, Ordering::Relaxed);
        }
    }

    /// Says who is to be woken when there is something to receive.
    pub(super) fn set_waker(&self, waker: &Waker) {
        let mut said = self.said();
        said.waker = Some(waker.clone());
        self.heard().waker = Some(waker.clone());
        lock(&said.common).set_waker(self.path, waker);
        said.wake();
    }

    // ── Whoever conducts the measurement ─────────────────────────────────────────────────────────────────────────────

    /// The handshake is over. Both locks are held, so that nobody finds the one gone and the other not there.
    pub(super) fn begin(said: &mut Said, heard: &mut Hearing, mut script: ScriptedPeer) {
        heard.ear = Some(script.part_ear());
        said.script = Some(Box::new(script));
    }

    /// Data packets that the measured end sent so far.
    pub(crate) fn packets_sent(&self) -> u64 {
        self.sent_full.load(Ordering::Relaxed)
    }

    /// Lets `write` make plans with the script.
    ///
    /// # Errors
    /// What went wrong so far, in words.
    pub(crate) fn with_script<T>(&self, write: impl FnOnce(&mut ScriptedPeer) -> T) -> Result<T, String> {
        self.said().script().map(write)
    }

    /// When what arrives from now on is acknowledged.
    pub(crate) fn set_manner(&self, manner: Manner) {
        self.heard().manner = manner;
    }

    /// Hands all of it out as fast as it is taken.
    pub(crate) fn feed(&self, items: Vec<Item>) {
        let mut said = self.said();
        said.items.extend(items);
        said.handed_bytes = 0;
        self.heard().begin_stretch();
        said.wake();
    }

    /// Memory of batches that were handed out, to be used again.
    pub(crate) fn take_spare(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.said().spare)
    }

    /// Compares everything that is sent from now on with the pattern. To be called before keys were updated.
    ///
    /// # Errors
    /// What went wrong so far, in words.
    pub(crate) fn begin_check(&self, pattern: &Pattern) -> Result<(), String> {
        let mut said = self.said();
        let common = Arc::clone(&said.common);
        let mut heard = self.heard();
        let script = said.script()?;
        // What was heard before the reader begins is where its numbers begin.
        heard.tell(script);
        let reader = lock(&common).keys().and_then(|keys| keys.reader(script));
        heard.begin_check(reader.ok_or("keys were updated too early")?, pattern.clone());
        Ok(())
    }
}

impl Said {
    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// The script, if nothing went wrong so far.
    ///
    /// # Errors
    /// What did, in words.
    pub(crate) fn script(&mut self) -> Result<&mut ScriptedPeer, String> {
        match (self.fault.get(), &mut self.script) {
            (Some(failure), _) => Err(failure.clone()),
            (None, Some(script)) => Ok(script),
            (None, None) => Err("the handshake is not over".to_owned()),
        }
    }

    /// There is something to be handed out at once.
    pub(super) fn has_more(&self) -> bool {
        !self.items.is_empty() && !self.is_held
    }

    /// The next batch into `buffer`: its length and the size of its datagrams, the full one if it is data. Nothing if there is
    /// none.
    pub(super) fn hand_out(&mut self, buffer: &mut [u8], size: usize) -> Option<(usize, usize)> {
        if self.script.is_none() {
            let (batch, stride) = lock(&self.common).pop_word(self.path)?;
            return Some((self.copy(&batch, buffer), stride));
        }
        let number = match self.items.front() {
            Some(Item::Batch(_)) => return self.hand_out_batch(buffer).map(|len| (len, size)),
            Some(Item::Ack(number)) => Some(*number),
            None => None,
        };
        let mut heard = lock(&self.heard);
        let (passes, answers) = match number {
            Some(_) => (heard.lets_pass(self.handed_bytes), true),
            None => (true, heard.is_answer_due()),
        };
        drop(heard);
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

    /// Seals an acknowledgement into `self.sealed`; false if there is nothing to acknowledge and no number to be used.
    fn seal_ack(&mut self, number: Option<u64>) -> bool {
        let Some(script) = &mut self.script else { return false };
        lock(&self.heard).tell(script);
        if script.lacks_keys() {
            if self.items.iter().any(|item| matches!(item, Item::Batch(_))) {
                // RFC 9001, section 6.4: what is sealed already has old keys and higher numbers.
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
