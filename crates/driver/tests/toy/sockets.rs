//! The state of send buffers of `LocalSocket`.

use std::collections::VecDeque;

use driver::socket::{Received, Sent};
use driver::{LocalSocket, SendError, Socket};
use units::{Duration, Instant};

use crate::packets::Segments;
use crate::protocol::Toy;

/// A socket with scripted results. After these, it accepts all packets and has received none.
#[derive(Default)]
struct Scripted {
    sends: VecDeque<Result<(), SendError>>,
    flushes: VecDeque<Result<(), SendError>>,
    receives: VecDeque<Received>,
    has_arrived: bool,
    announces_space: bool,
    sent: Vec<Vec<u8>>,
}

impl Socket<Toy> for Scripted {
    type Buffers = ();

    fn receive(&mut self, (): &mut (), batches: &mut Vec<Segments>) -> Received {
        batches.push(Segments::default());
        self.receives.pop_front().unwrap_or(Received::NoMore)
    }

    fn send(&mut self, packets: &Vec<u8>) -> Result<(), SendError> {
        self.sends.pop_front().unwrap_or(Ok(()))?;
        self.sent.push(packets.clone());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.flushes.pop_front().unwrap_or(Ok(()))
    }

    fn batch_max(&self) -> usize {
        1
    }

    fn announces_space(&self) -> bool {
        self.announces_space
    }

    fn has_arrived(&self) -> bool {
        self.has_arrived
    }

    fn take_arrived(&mut self) -> bool {
        std::mem::take(&mut self.has_arrived)
    }
}

const RETRY: Duration = Duration::from_micros(500);

fn socket(sends: impl IntoIterator<Item = SendError>, announces_space: bool) -> LocalSocket<Toy, Scripted, u32> {
    let sends = sends.into_iter().map(Err).collect();
    LocalSocket::new(Scripted { sends, announces_space, ..Scripted::default() })
}

/// Sends a batch of one byte of owner `number`. Returns whether it was accepted.
fn send(socket: &mut LocalSocket<Toy, Scripted, u32>, now: Instant, number: u8) -> bool {
    let mut packets = vec![number];
    match socket.send(now, &mut packets, || number.into()) {
        Sent::Taken => {
            assert_eq!(packets.is_empty(), !socket.has_space(), "held packets are moved out");
            true
        }
        Sent::Lost(_) => false,
    }
}

#[test]
fn packets_without_space_are_held_until_the_system_announces_space() {
    let now = Instant::ZERO;
    let mut socket = socket([SendError::WouldBlock, SendError::WouldBlock], true);
    assert!(socket.has_space() && send(&mut socket, now, 1));
    assert!(!socket.has_space() && socket.awaits_writable());
    assert_eq!((socket.held(), socket.retry_at()), (Some(&1), None));
    let late = now + Duration::from_secs(1);
    assert!(!socket.take_retry_due(late), "a timeout has no effect");
    socket.note_ready(true, false);
    assert!(!socket.take_retry_due(late), "an arrival has no effect");
    socket.note_ready(false, true);
    assert!(socket.take_retry_due(late) && !socket.take_retry_due(late), "reported once");
    // Space was announced, but another sender has used it.
    assert_eq!(socket.retry(late), None);
    assert!(socket.awaits_writable() && socket.held() == Some(&1) && socket.socket.sent.is_empty());
    socket.note_ready(false, true);
    assert!(socket.take_retry_due(late));
    assert_eq!(socket.retry(late), None);
    assert!(socket.has_space() && socket.held().is_none());
    assert!(send(&mut socket, late, 2));
    assert_eq!(socket.socket.sent, [[1], [2]], "in order");
}

#[test]
fn a_full_queue_below_the_socket_is_retried_after_a_fixed_time() {
    for (error, announces_space) in [(SendError::NoBuffers, true), (SendError::WouldBlock, false)] {
        let now = Instant::ZERO + Duration::from_secs(3);
        let mut socket = socket([error.clone(), error], announces_space);
        assert!(send(&mut socket, now, 1));
        assert_eq!((socket.retry_at(), socket.awaits_writable()), (Some(now + RETRY), false));
        socket.note_ready(false, true);
        assert!(!socket.take_retry_due(now), "the socket itself had space all the time");
        let later = now + RETRY;
        assert!(socket.take_retry_due(later));
        assert_eq!(socket.retry(later), None);
        assert_eq!((socket.retry_at(), socket.held()), (Some(later + RETRY), Some(&1)), "still full");
        assert_eq!(socket.retry(later + RETRY), None);
        assert_eq!((socket.retry_at(), socket.held()), (None, None));
        assert_eq!(socket.socket.sent, [[1]]);
    }
}

#[test]
fn packets_that_the_system_refuses_are_dropped_and_their_owner_is_reported() {
    let now = Instant::ZERO;
    let mut socket = socket([SendError::TooLarge, SendError::NoBuffers, SendError::Refused("no route".into())], true);
    assert!(!send(&mut socket, now, 1));
    assert!(socket.has_space() && socket.held().is_none(), "the next batch may be accepted");
    assert!(send(&mut socket, now, 2));
    assert_eq!(socket.retry(now + RETRY), Some((2, SendError::Refused("no route".into()))));
    assert!(socket.has_space() && socket.held().is_none());
    assert!(send(&mut socket, now, 3));
    assert_eq!(socket.socket.sent, [[3]]);
}

#[test]
fn delayed_packets_are_flushed_before_held_ones() {
    let now = Instant::ZERO;
    let mut socket = socket([SendError::WouldBlock], true);
    assert!(send(&mut socket, now, 1));
    socket.socket.flushes = [Err(SendError::WouldBlock), Err(SendError::TooLarge)].into();
    socket.flush(now);
    assert_eq!(socket.socket.flushes.len(), 2, "not called while there is no space");
    socket.retry(now);
    assert!(socket.awaits_writable() && socket.held() == Some(&1), "the rest found no space");
    // The loss of the rest does not affect later packets.
    socket.retry(now);
    assert!(socket.has_space() && socket.held().is_none());
    socket.socket.flushes = [Err(SendError::NoBuffers)].into();
    socket.flush(now);
    assert_eq!(
        (socket.retry_at(), socket.held()),
        (Some(now + RETRY), None),
        "the socket is full although nothing is held"
    );
}

#[test]
fn a_socket_is_read_until_it_is_empty_and_not_for_ever_if_it_fails() {
    let mut batches = Vec::new();
    let mut socket = socket([], true);
    assert!(socket.is_readable(), "it was not polled yet");
    socket.socket.receives = [Received::MayHaveMore, Received::NoMore].into();
    socket.receive(&mut (), &mut batches);
    assert!(socket.is_readable());
    socket.receive(&mut (), &mut batches);
    assert!(!socket.is_readable() && batches.len() == 2);
    socket.note_ready(true, false);
    let failures = || (0..).map(|_| Received::Failed("unreachable".into()));
    socket.socket.receives = failures().take(15).chain([Received::MayHaveMore]).chain(failures().take(16)).collect();
    for _ in 0..31 {
        assert!(socket.is_readable());
        socket.receive(&mut (), &mut batches);
    }
    assert!(socket.is_readable(), "a success between failures counts");
    socket.receive(&mut (), &mut batches);
    assert!(!socket.is_readable(), "sixteen in a row");
    socket.socket.has_arrived = true;
    assert!(socket.is_readable() && socket.take_readable());
    assert!(!socket.socket.has_arrived && socket.is_readable(), "the arrival was recorded");
}

#[test]
fn a_socket_that_only_sends_receives_after_receive_here() {
    let mut socket: LocalSocket<Toy, Scripted, u32> = LocalSocket::only_sending(Scripted::default());
    socket.note_ready(true, true);
    socket.socket.has_arrived = true;
    assert!(!socket.is_readable() && !socket.take_readable());
    assert!(socket.socket.has_arrived, "another processor receives it");
    socket.receive_here();
    assert!(socket.is_readable() && socket.take_readable());
}
