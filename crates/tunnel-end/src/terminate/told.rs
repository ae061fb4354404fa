//! [`ToldClasses`]: what a peer tells of the classes of its connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use quic_endpoint::StreamId;
use tcp_stack::TcpStream;

/// What a peer tells of connections: the DSCP of packets that leave here, by the stream of the connection.
#[derive(Debug, Default)]
pub(crate) struct ToldClasses {
    by_stream: Mutex<BTreeMap<u64, Told>>,
}

#[derive(Debug, Default)]
struct Told {
    dscp: Option<u8>,
    /// The connection, once it exists.
    stream: Weak<TcpStream>,
}

impl ToldClasses {
    /// Takes what the peer tells of a connection with this stream, until the result is dropped. Called before the
    /// peer knows that the stream is one.
    pub(crate) fn expect(self: &Arc<Self>, stream: StreamId) -> ToldClass {
        lock(&self.by_stream).insert(stream.raw(), Told::default());
        ToldClass { all: Arc::clone(self), stream: stream.raw() }
    }

    /// The peer tells of this stream. False if it is none of a connection.
    pub(crate) fn on_told(&self, stream: u64, dscp: u8) -> bool {
        let mut by_stream = lock(&self.by_stream);
        let Some(told) = by_stream.get_mut(&stream) else { return false };
        told.dscp = Some(dscp);
        if let Some(stream) = told.stream.upgrade() {
            stream.set_dscp(dscp);
        }
        true
    }
}

/// What the peer tells of one connection.
pub(crate) struct ToldClass {
    all: Arc<ToldClasses>,
    stream: u64,
}

impl ToldClass {
    /// The peer tells it in the answer to a request. What it has told since then is later, and counts. Returns
    /// the DSCP of what leaves here.
    pub(crate) fn begin_with(&self, dscp: u8) -> u8 {
        let mut by_stream = lock(&self.all.by_stream);
        by_stream.get_mut(&self.stream).map_or(dscp, |told| *told.dscp.get_or_insert(dscp))
    }

    /// Applies it to this connection from now on.
    pub(crate) fn apply_to(&self, stream: &Arc<TcpStream>) {
        if let Some(told) = lock(&self.all.by_stream).get_mut(&self.stream) {
            told.stream = Arc::downgrade(stream);
            if let Some(dscp) = told.dscp {
                stream.set_dscp(dscp);
            }
        }
    }
}

impl Drop for ToldClass {
    fn drop(&mut self) {
        lock(&self.all.by_stream).remove(&self.stream);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPEDITED: u8 = 46;

    #[test]
    fn what_a_peer_tells_of_streams_without_a_connection_is_refused() {
        let told = Arc::<ToldClasses>::default();
        let stream = StreamId::from_raw(20);
        assert!(!told.on_told(stream.raw(), EXPEDITED));
        let expected = told.expect(stream);
        assert!(told.on_told(stream.raw(), EXPEDITED) && !told.on_told(u64::MAX, EXPEDITED));
        drop(expected);
        assert!(!told.on_told(stream.raw(), EXPEDITED));
        assert!(lock(&told.by_stream).is_empty());
    }

    #[test]
    fn the_class_of_an_answer_counts_until_another_one_is_told() {
        let told = Arc::<ToldClasses>::default();
        let first = told.expect(StreamId::from_raw(20));
        assert_eq!((first.begin_with(34), first.begin_with(10)), (34, 34));
        let second = told.expect(StreamId::from_raw(24));
        assert!(told.on_told(24, EXPEDITED));
        assert_eq!(second.begin_with(34), EXPEDITED, "it was told later, on another stream");
    }
}
