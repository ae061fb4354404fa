//! The socket of the measured end: what is sent to it goes to the script at once, and what the script has to say is received
//! from it. It has no thread, no queue between threads and no system call; its work is done inside `send` and `recv`.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use litz::{LiveSocket, Readiness};
use net::{DatagramSocket, RecvMeta, SendError, SocketCounters, Transmit};
use quic::{PLAN_DATAGRAMS_MAX, Plan, ScriptedPeer, seal};

use super::link::{Common, lock};
use super::peer::{local_addr, peer_addr};

/// Packets that are acknowledged at a time: what our own send half asks its peer for at most.
pub(crate) const ACK_EVERY: u64 = 256;

/// Until so many packets were acknowledged, some are acknowledged sooner: the window opens as it does on a real path.
const ACK_SOONER_BELOW: u64 = 4 * ACK_EVERY;

/// Turns without a packet on one of several paths, until what has arrived there is acknowledged all the same. Its processor does
/// turns of less than a microsecond while the driver plans its next batch; acknowledging each batch for that would make work for the
/// driver. Far less than any timer takes.
const PATIENCE: u32 = 32;

/// The other end of one socket, for both its owner and whoever conducts the measurement.
pub(crate) struct Channel {
    state: Mutex<State>,
    /// Datagrams of the full size that the measured end sent: the data.
    sent_full: AtomicU64,
    path: u16,
    datagram_size: usize,
}

/// What the script hands out next.
pub(crate) enum Item {
    /// A sealed batch.
    Batch(Vec<u8>),
    /// Here an acknowledgement goes, under this number.
    Ack(u64),
}

pub(crate) struct State {
    common: Arc<Mutex<Common>>,
    path: u16,
    /// None during the handshake, which is for [`Common`].
    script: Option<Box<ScriptedPeer>>,
    /// Sealed in advance.
    items: VecDeque<Item>,
    /// Memory of batches that were handed out.
    spare: Vec<Vec<u8>>,
    /// What arrives is acknowledged when it is due, not only where [`Item::Ack`] says so.
    acknowledges: bool,
    /// How often the script was asked for what it has to say since something was sent.
    silent_turns: u32,
    /// After so many of them the sender may be waiting for an acknowledgement.
    patience: u32,
    acked: u64,
    waker: Option<Waker>,
    plan: Plan,
    sealed: Vec<u8>,
    /// What went wrong first.
    pub(crate) failure: Option<String>,
}

impl Channel {
    /// One of so many paths.
    pub(crate) fn new(common: Arc<Mutex<Common>>, path: u16, paths: u16, datagram_size: usize) -> Arc<Self> {
        let patience = if paths == 1 { 1 } else { PATIENCE };
        let state = State {
            common,
            path,
            script: None,
            items: VecDeque::new(),
            spare: Vec::new(),
            acknowledges: true,
            silent_turns: 0,
            patience,
            acked: 0,
            waker: None,
            plan: Plan::new(),
            sealed: Vec::new(),
            failure: None,
        };
        Arc::new(Self { state: Mutex::new(state), sent_full: AtomicU64::new(0), path, datagram_size })
    }

    /// The measured end's side of it.
    pub(crate) fn socket(self: &Arc<Self>) -> ScriptSocket {
        ScriptSocket { channel: Arc::clone(self), counters: SocketCounters::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
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
        self.lock().script().map(write)
    }

    /// From now on nothing is acknowledged but where an [`Item::Ack`] is handed out: numbers of what is sealed in advance must not
    /// be overtaken.
    pub(crate) fn stop_acknowledging(&self) {
        self.lock().acknowledges = false;
    }

    /// Hands all of it out as fast as it is taken.
    pub(crate) fn feed(&self, items: Vec<Item>) {
        let mut state = self.lock();
        state.items.extend(items);
        state.wake();
    }

    /// Memory of batches that were handed out, to be used again.
    pub(crate) fn take_spare(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.lock().spare)
    }
}

impl State {
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    fn fail(&mut self, words: String) {
        self.failure.get_or_insert(words);
    }

    /// The handshake is over.
    pub(crate) fn begin(&mut self, script: ScriptedPeer) {
        self.script = Some(Box::new(script));
    }

    /// The script, if nothing went wrong so far.
    ///
    /// # Errors
    /// What did, in words.
    pub(crate) fn script(&mut self) -> Result<&mut ScriptedPeer, String> {
        match (&self.failure, &mut self.script) {
            (Some(failure), _) => Err(failure.clone()),
            (None, Some(script)) => Ok(script),
            (None, None) => Err("the handshake is not over".to_owned()),
        }
    }

    /// Takes what was sent.
    fn take(&mut self, batch: &[u8], stride: usize) {
        let Some(script) = &mut self.script else {
            return lock(&self.common).take(self.path, batch, stride);
        };
        if let Err(error) = script.note_arrived(batch, stride) {
            return self.fail(error.to_string());
        }
        if script.lacks_keys()
            && let Some(keys) = lock(&self.common).keys()
        {
            keys.renew(script);
        }
        if self.acknowledges {
            self.silent_turns = 0;
            self.wake();
        }
    }

    /// Whether an acknowledgement is due now; one that is not due yet makes the owner ask again.
    fn is_ack_due(&mut self) -> bool {
        let Some(script) = &self.script else { return false };
        let waiting = script.unacknowledged();
        if !self.acknowledges || waiting == 0 {
            return false;
        }
        let sooner = if self.acked < ACK_SOONER_BELOW { 2 + self.acked / 4 } else { ACK_EVERY };
        let has_stalled = self.silent_turns >= self.patience;
        self.silent_turns += 1;
        let is_due = has_stalled || waiting >= sooner.min(ACK_EVERY);
        if !is_due {
            self.wake();
        }
        is_due
    }

    /// Seals an acknowledgement into `self.sealed`; how many packets it is about.
    fn seal_ack(&mut self, number: Option<u64>) -> u64 {
        let Some(script) = &mut self.script else { return 0 };
        let count = script.unacknowledged();
        match number {
            Some(number) => script.plan_ack_as(number, &mut self.plan),
            None if script.plan_ack(&mut self.plan) => {}
            None => return 0,
        }
        seal(&self.plan, &mut self.sealed);
        self.acked += count;
        count
    }

    /// The next batch into `buffer`: its length and the size of its datagrams. Nothing if there is none.
    fn hand_out(&mut self, buffer: &mut [u8], size: usize) -> Option<(usize, usize)> {
        if self.script.is_none() {
            let (batch, stride) = lock(&self.common).pop_word(self.path)?;
            return Some((self.copy(&batch, buffer), stride));
        }
        match self.items.pop_front() {
            Some(Item::Batch(batch)) => {
                let len = self.copy(&batch, buffer);
                self.spare.push(batch);
                return Some((len, size));
            }
            Some(Item::Ack(number)) => {
                self.seal_ack(Some(number));
            }
            None if self.is_ack_due() => {
                if self.seal_ack(None) == 0 {
                    return None;
                }
            }
            None => return None,
        }
        let sealed = std::mem::take(&mut self.sealed);
        let len = self.copy(&sealed, buffer);
        self.sealed = sealed;
        Some((len, len.max(1)))
    }

    fn copy(&mut self, batch: &[u8], buffer: &mut [u8]) -> usize {
        if batch.len() > buffer.len() {
            self.fail("a receive buffer is smaller than a batch".to_owned());
            return 0;
        }
        buffer[..batch.len()].copy_from_slice(batch);
        batch.len()
    }
}

/// What the measured end takes for a socket.
pub(crate) struct ScriptSocket {
    channel: Arc<Channel>,
    counters: SocketCounters,
}

impl DatagramSocket for ScriptSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(local_addr(self.channel.path))
    }

    fn max_gso_segments(&self) -> usize {
        PLAN_DATAGRAMS_MAX
    }

    fn max_gro_segments(&self) -> usize {
        PLAN_DATAGRAMS_MAX
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        let (batch, size) = (transmit.contents, self.channel.datagram_size);
        let stride = transmit.segment_size.unwrap_or(batch.len()).max(1);
        self.channel.lock().take(batch, stride);
        if stride == size {
            // One thread sends, so there is nothing to be lost between the two.
            let sent = self.channel.sent_full.load(Ordering::Relaxed);
            self.channel.sent_full.store(sent + (batch.len() / size) as u64, Ordering::Relaxed);
        }
        self.counters.datagrams_sent += batch.len().div_ceil(stride) as u64;
        self.counters.batches_sent += 1;
        self.counters.bytes_sent += batch.len() as u64;
        Ok(())
    }

    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize> {
        let (source, destination_ip) = (peer_addr(self.channel.path), Some(local_addr(self.channel.path).ip()));
        let mut state = self.channel.lock();
        let mut count = 0;
        for (buffer, meta) in buffers.iter_mut().zip(metas) {
            let Some((len, stride)) = state.hand_out(buffer, self.channel.datagram_size) else { break };
            *meta = RecvMeta { source, destination_ip, len, stride, ecn: None };
            self.counters.datagrams_received += len.div_ceil(stride) as u64;
            self.counters.batches_received += 1;
            self.counters.bytes_received += len as u64;
            count += 1;
        }
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if !state.items.is_empty() {
            // The owner may take no more in this turn.
            state.wake();
        }
        Ok(count)
    }

    fn counters(&self) -> &SocketCounters {
        &self.counters
    }
}

impl LiveSocket for ScriptSocket {
    fn readiness(&mut self, waker: &Waker) -> Readiness {
        let mut state = self.channel.lock();
        state.waker = Some(waker.clone());
        lock(&state.common).set_waker(self.channel.path, waker);
        state.wake();
        Readiness::Waker
    }
}
