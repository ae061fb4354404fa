//! Bytes in both directions at once on one stream, while a test acts on the paths and for a while
//! longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use litz_interop::pattern::{CHUNK_LEN, Checker, fill};

use crate::pair::{Client, Pair};

/// In each direction, at least.
pub const BYTES_MIN: u64 = 12_000_000;

/// In each direction after the test's actions on the paths.
const BYTES_AFTER: u64 = 6_000_000;

/// The progress of both directions.
#[derive(Default)]
struct Progress {
    /// Writers stop here or, if they are past it, at once.
    until: AtomicU64,
    /// Correct bytes received.
    ours_received: AtomicU64,
    theirs_received: AtomicU64,
}

impl Progress {
    fn received(&self) -> (u64, u64) {
        (self.ours_received.load(Relaxed), self.theirs_received.load(Relaxed))
    }

    /// The number of bytes that a writer at `offset` writes next.
    fn due(&self, offset: u64) -> usize {
        self.until.load(Relaxed).saturating_sub(offset).min(CHUNK_LEN as u64) as usize
    }
}

/// A transfer in progress.
pub struct Flow<'a> {
    pub pair: &'a Pair,
    progress: Arc<Progress>,
}

impl Flow<'_> {
    /// Waits until `bytes` more have arrived in each direction.
    pub fn wait_for_bytes(&self, bytes: u64) {
        let (ours, theirs) = self.progress.received();
        self.pair.wait_for("bytes in both directions", || {
            let now = self.progress.received();
            (now.0 >= ours + bytes && now.1 >= theirs + bytes).then_some(())
        });
    }
}

/// Closes the connection if a test fails half way, so that the threads that wait on it end too.
struct EndOnPanic<'a>(&'a Pair);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.us.close(1, "the test failed");
            self.0.them.close(1_u32.into(), b"the test failed");
        }
    }
}

impl Pair {
    /// Sends in both directions while `during` runs, and checks every byte.
    pub fn transfer(&self, during: impl FnOnce(&Flow<'_>)) {
        let progress = Arc::new(Progress { until: AtomicU64::new(u64::MAX), ..Progress::default() });
        let theirs = self.runtime.spawn(their_side(self.them.clone(), self.client == Client::Theirs, progress.clone()));
        std::thread::scope(|scope| {
            let ours = scope.spawn(|| our_side(&self.us, self.client == Client::Ours, &progress));
            let _guard = EndOnPanic(self);
            let flow = Flow { pair: self, progress: progress.clone() };
            during(&flow);
            let (ours_received, theirs_received) = progress.received();
            progress.until.store(BYTES_MIN.max(ours_received.max(theirs_received) + BYTES_AFTER), Relaxed);
            self.wait_for("the end of the transfer", || (ours.is_finished() && theirs.is_finished()).then_some(()));
            let (ours_sent, ours_received) = ours.join().expect("our side succeeds");
            let (theirs_sent, theirs_received) = self.runtime.block_on(theirs).expect("noq's side succeeds");
            assert_eq!((ours_sent, theirs_sent), (theirs_received, ours_received));
            assert!(ours_sent >= BYTES_MIN && theirs_sent >= BYTES_MIN);
        });
    }
}

/// Bytes sent and received.
fn our_side(connection: &litz::Connection, opens: bool, progress: &Progress) -> (u64, u64) {
    let (mut send, mut recv) =
        if opens { connection.open_bi().expect("a stream") } else { connection.accept_bi().expect("a stream") };
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let mut offset = 0;
            loop {
                let mut chunk = vec![0; progress.due(offset)];
                if chunk.is_empty() {
                    break;
                }
                fill(offset, &mut chunk);
                offset += chunk.len() as u64;
                send.write_chunk(chunk.into()).expect("the stream stays open");
            }
            send.finish().expect("the stream stays open");
            send.wait_finished().expect("the peer has everything");
            offset
        });
        let mut checker = Checker::default();
        while let Some(chunk) = recv.read_chunk().expect("the stream stays open") {
            checker.take(&chunk);
            progress.ours_received.store(checker.taken(), Relaxed);
        }
        (writer.join().expect("the writer does not panic"), checker.taken())
    })
}

/// As [`our_side`].
async fn their_side(connection: noq::Connection, opens: bool, progress: Arc<Progress>) -> (u64, u64) {
    let (mut send, mut recv) = if opens {
        connection.open_bi().await.expect("a stream")
    } else {
        connection.accept_bi().await.expect("a stream")
    };
    let writer = tokio::spawn({
        let progress = progress.clone();
        async move {
            let (mut offset, mut chunk) = (0, vec![0; CHUNK_LEN]);
            loop {
                let len = progress.due(offset);
                if len == 0 {
                    break;
                }
                fill(offset, &mut chunk[..len]);
                send.write_all(&chunk[..len]).await.expect("the stream stays open");
                offset += len as u64;
            }
            send.finish().expect("the stream stays open");
            send.stopped().await.expect("the peer has everything");
            offset
        }
    });
    let mut checker = Checker::default();
    while let Some(chunk) = recv.read_chunk(1 << 20).await.expect("the stream stays open") {
        checker.take(&chunk);
        progress.theirs_received.store(checker.taken(), Relaxed);
    }
    (writer.await.expect("the writer does not panic"), checker.taken())
}
