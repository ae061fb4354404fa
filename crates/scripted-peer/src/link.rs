//! The far end as a whole: a real peer for the handshake on all paths, then a script with a channel
//! for each path.
//!
//! Different processors use the channels of different paths at the same time, so these share only
//! the keys of the next phase, which are needed once in about a million packets.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::channel::Channel;
use crate::peer::Peer;
use crate::script::ScriptKeys;

/// A sealed batch and the size of its datagrams.
type Batch = (Vec<u8>, usize);

/// State that all paths share. Lock order: after a channel, never before one.
pub(crate) struct Common {
    state: LinkState,
    /// Batches that the peer sends during the handshake, by path.
    outgoing: Vec<VecDeque<Batch>>,
    wakers: Vec<Option<Waker>>,
    failure: Option<String>,
}

enum LinkState {
    Handshake(Box<Peer>),
    Script(Box<ScriptKeys>),
    Failed,
}

impl Common {
    /// Processes a batch that the measured end sent on a path before there was a script.
    pub(crate) fn take(&mut self, path: u16, batch: &[u8], stride: usize) {
        if let LinkState::Handshake(peer) = &mut self.state
            && let Err(message) = peer.handle(path, batch, stride)
        {
            self.failure.get_or_insert(message);
        }
        self.poll();
    }

    /// Returns the next batch of the peer for a path.
    pub(crate) fn pop_outgoing(&mut self, path: u16) -> Option<Batch> {
        self.outgoing[usize::from(path)].pop_front()
    }

    /// Wakes `waker` when there is a batch for a path.
    pub(crate) fn set_waker(&mut self, path: u16, waker: &Waker) {
        self.wakers[usize::from(path)] = Some(waker.clone());
    }

    /// Returns the keys of the script, once there is one.
    pub(crate) fn keys(&mut self) -> Option<&mut ScriptKeys> {
        if let LinkState::Script(keys) = &mut self.state { Some(keys) } else { None }
    }

    /// Runs the peer's timers and collects its outgoing batches.
    fn poll(&mut self) {
        let LinkState::Handshake(peer) = &mut self.state else { return };
        // The engine opens no path from a socket that it does not have.
        peer.poll(|path, batch, stride| {
            if let Some(batches) = self.outgoing.get_mut(usize::from(path)) {
                batches.push_back((batch, stride));
            }
        });
        for (batches, waker) in self.outgoing.iter().zip(&self.wakers) {
            if let Some(waker) = waker.as_ref().filter(|_| !batches.is_empty()) {
                waker.wake_by_ref();
            }
        }
    }
}

/// Locks a mutex, even a poisoned one: a thread that panicked leaves no inconsistent state under
/// these locks.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The far end of all paths.
pub struct Link {
    common: Arc<Mutex<Common>>,
    /// Channels by path, that is by socket of the measured end.
    pub channels: Vec<Arc<Channel>>,
}

impl Link {
    /// Creates channels for `paths` paths to a peer that waits for a handshake.
    pub fn new(peer: Peer, paths: u16, datagram_size: usize) -> Self {
        let common = Common {
            state: LinkState::Handshake(Box::new(peer)),
            outgoing: (0..paths).map(|_| VecDeque::new()).collect(),
            wakers: (0..paths).map(|_| None).collect(),
            failure: None,
        };
        let common = Arc::new(Mutex::new(common));
        let channels = (0..paths).map(|path| Channel::new(Arc::clone(&common), path, paths, datagram_size)).collect();
        Self { common, channels }
    }

    /// Replaces the peer with a script if both ends are at rest and all paths are active; otherwise
    /// polls the peer. Returns true once there is a script.
    ///
    /// # Errors
    /// Returns the first failure.
    pub fn begin_script(&self) -> Result<bool, String> {
        // Takes all locks at once, so that every call finds either the peer or its script.
        let mut send_side: Vec<_> = self.channels.iter().map(|channel| channel.send_side()).collect();
        let mut receive_side: Vec<_> = self.channels.iter().map(|channel| channel.receive_side()).collect();
        let mut common = lock(&self.common);
        if let Some(failure) = &common.failure {
            return Err(failure.clone());
        }
        common.poll();
        let has_more = common.outgoing.iter().any(|batches| !batches.is_empty());
        match &mut common.state {
            LinkState::Script(_) => return Ok(true),
            LinkState::Failed => return Err("the handshake failed".to_owned()),
            LinkState::Handshake(peer) => {
                if has_more || !peer.can_become_script(send_side.len()) {
                    return Ok(false);
                }
            }
        }
        if let LinkState::Handshake(peer) = std::mem::replace(&mut common.state, LinkState::Failed)
            && let Some((keys, scripts)) = peer.into_script(send_side.len())
        {
            common.state = LinkState::Script(Box::new(keys));
            for script in scripts {
                let path = usize::from(script.addresses().socket);
                Channel::begin(&mut send_side[path], &mut receive_side[path], script);
            }
        }
        Ok(common.keys().is_some())
    }

    /// Makes the script seal with the next keys, if a key update is permitted.
    ///
    /// # Errors
    /// Returns the first failure.
    pub fn update_keys(&self) -> Result<bool, String> {
        let mut send_side: Vec<_> = self.channels.iter().map(|channel| channel.send_side()).collect();
        let mut scripts = send_side.iter_mut().map(|send_side| send_side.script()).collect::<Result<Vec<_>, _>>()?;
        for (script, channel) in scripts.iter_mut().zip(&self.channels) {
            channel.receive_side().report_to(script);
        }
        let mut common = lock(&self.common);
        Ok(common.keys().is_some_and(|keys| keys.update(&mut scripts)))
    }

    /// Returns the number of data packets that the measured end has sent.
    pub fn packets_sent(&self) -> u64 {
        self.channels.iter().map(|channel| channel.packets_sent()).sum()
    }

    /// Returns the first failure.
    pub fn failure(&self) -> Option<String> {
        let failed = self.channels.iter().find_map(|channel| channel.failure());
        failed.or_else(|| lock(&self.common).failure.clone())
    }
}
