//! The whole other end: a peer for the handshake on all paths, then a script with a channel for each path.
//!
//! Channels of different paths are used by different processors at the same time, so they share nothing but the keys of the
//! next phase, which are asked for once in some million packets.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use quic::ScriptKeys;

use super::channel::Channel;
use super::peer::Peer;

/// A sealed batch and the size of its datagrams.
type Batch = (Vec<u8>, usize);

/// What all paths have in common. Locked after a channel, never before one.
pub(crate) struct Common {
    act: Act,
    /// Said during the handshake, path by path.
    words: Vec<VecDeque<Batch>>,
    wakers: Vec<Option<Waker>>,
    failure: Option<String>,
}

enum Act {
    Handshake(Box<Peer>),
    Script(Box<ScriptKeys>),
    /// The handshake failed.
    Over,
}

impl Common {
    /// Takes what the measured end said on a path before there was a script.
    pub(crate) fn take(&mut self, path: u16, batch: &[u8], stride: usize) {
        if let Act::Handshake(peer) = &mut self.act
            && let Err(words) = peer.handle(path, batch, stride)
        {
            self.failure.get_or_insert(words);
        }
        self.poll();
    }

    /// What the peer has to say next on a path.
    pub(crate) fn pop_word(&mut self, path: u16) -> Option<Batch> {
        self.words[usize::from(path)].pop_front()
    }

    /// Who is to be told when there is something to say on a path.
    pub(crate) fn set_waker(&mut self, path: u16, waker: &Waker) {
        self.wakers[usize::from(path)] = Some(waker.clone());
    }

    /// The keys of the script, once there is one.
    pub(crate) fn keys(&mut self) -> Option<&mut ScriptKeys> {
        if let Act::Script(keys) = &mut self.act { Some(keys) } else { None }
    }

    /// Lets the peer do what is due.
    fn poll(&mut self) {
        let Act::Handshake(peer) = &mut self.act else { return };
        // The engine opens no path from a socket that it does not have.
        peer.poll(|path, batch, stride| {
            if let Some(words) = self.words.get_mut(usize::from(path)) {
                words.push_back((batch, stride));
            }
        });
        for (words, waker) in self.words.iter().zip(&self.wakers) {
            if let Some(waker) = waker.as_ref().filter(|_| !words.is_empty()) {
                waker.wake_by_ref();
            }
        }
    }
}

/// A thread that panicked elsewhere has left nothing half done here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The other end of all paths.
pub(crate) struct Link {
    common: Arc<Mutex<Common>>,
    /// By path, which is a socket of the measured end.
    pub(crate) channels: Vec<Arc<Channel>>,
}

impl Link {
    /// So many channels to a peer that waits for a handshake.
    pub(crate) fn new(peer: Peer, paths: u16, datagram_size: usize) -> Self {
        let common = Common {
            act: Act::Handshake(Box::new(peer)),
            words: (0..paths).map(|_| VecDeque::new()).collect(),
            wakers: (0..paths).map(|_| None).collect(),
            failure: None,
        };
        let common = Arc::new(Mutex::new(common));
        let channels = (0..paths).map(|path| Channel::new(Arc::clone(&common), path, paths, datagram_size)).collect();
        Self { common, channels }
    }

    /// Turns the peer into a script if both ends are at rest and all paths work; lets it do what is due otherwise. True once it is
    /// one.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub(crate) fn begin_script(&self) -> Result<bool, String> {
        // All of them: nobody may find the one gone and the other not there.
        let mut said: Vec<_> = self.channels.iter().map(|channel| channel.said()).collect();
        let mut heard: Vec<_> = self.channels.iter().map(|channel| channel.heard()).collect();
        let mut common = lock(&self.common);
        if let Some(failure) = &common.failure {
            return Err(failure.clone());
        }
        common.poll();
        let has_more = common.words.iter().any(|words| !words.is_empty());
        match &mut common.act {
            Act::Script(_) => return Ok(true),
            Act::Over => return Err("the handshake failed".to_owned()),
            Act::Handshake(peer) => {
                if has_more || !peer.can_become_script(said.len()) {
                    return Ok(false);
                }
            }
        }
        if let Act::Handshake(peer) = std::mem::replace(&mut common.act, Act::Over)
            && let Some((keys, scripts)) = peer.into_script(said.len())
        {
            common.act = Act::Script(Box::new(keys));
            for script in scripts {
                let path = usize::from(script.addresses().socket);
                Channel::begin(&mut said[path], &mut heard[path], script);
            }
        }
        Ok(common.keys().is_some())
    }

    /// Makes the script seal with the next keys, if it may.
    ///
    /// # Errors
    /// What went wrong so far, in words.
    pub(crate) fn update_keys(&self) -> Result<bool, String> {
        let mut said: Vec<_> = self.channels.iter().map(|channel| channel.said()).collect();
        let mut scripts = said.iter_mut().map(|said| said.script()).collect::<Result<Vec<_>, _>>()?;
        for (script, channel) in scripts.iter_mut().zip(&self.channels) {
            channel.heard().tell(script);
        }
        let mut common = lock(&self.common);
        Ok(common.keys().is_some_and(|keys| keys.update(&mut scripts)))
    }

    /// Data packets that the measured end sent so far.
    pub(crate) fn packets_sent(&self) -> u64 {
        self.channels.iter().map(|channel| channel.packets_sent()).sum()
    }

    /// What went wrong first, in words.
    pub(crate) fn failure(&self) -> Option<String> {
        let failed = self.channels.iter().find_map(|channel| channel.failure());
        failed.or_else(|| lock(&self.common).failure.clone())
    }
}
