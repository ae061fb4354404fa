//! What the driver knows about the room of a socket.

use std::collections::VecDeque;

use driver::socket::{Received, Sent};
use driver::{LocalSocket, SendError, Socket};
use units::{Duration, Instant};

use crate::packets::Segments;
use crate::protocol::Toy;

/// A socket that answers as it was told; afterwards it takes everything and has received nothing.
#[derive(Default)]
struct Scripted {
    sends: VecDeque<Result<(), SendError>>,
    flushes: VecDeque<Result<(), SendError>>,
    receives: VecDeque<Received>,
    has_arrived: bool,
    announces_room: bool,
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

    fn announces_room(&self) -> bool {
        self.announces_room
    }

    fn has_arrived(&self) -> bool {
        self.has_arrived
    }

    fn take_arrived(&mut self) -> bool {
        std::mem::take(&mut self.has_arrived)
    }
}

const RETRY: Duration = Duration::from_micros(500);

fn socket(sends: impl IntoIterator<Item = SendError>, announces_room: bool) -> LocalSocket<Toy, Scripted, u32> {
    let sends = sends.into_iter().map(Err).collect();
    LocalSocket::new(Scripted { sends, announces_room, ..Scripted::default() })
}

/// Sends a batch of one byte of owner `number`; whether it was taken.
fn send(socket: &mut LocalSocket<Toy, Scripted, u32>, now: Instant, number: u8) -> bool {
    let mut packets = vec![number];
    match socket.send(now, &mut packets, || number.into()) {
        Sent::Taken => {
            assert_eq!(packets.is_empty(), !socket.has_room(), "what is held was taken out");
            true
        }
        Sent::Lost(_) => false,
    }
}

#[test]
fn what_finds_no_room_is_held_until_the_system_announces_some() {
    let now = Instant::ZERO;
    let mut socket = socket([SendError::WouldBlock, SendError::WouldBlock], true);
    assert!(socket.has_room() && send(&mut socket, now, 1));
    assert!(!socket.has_room() && socket.awaits_writable());
    assert_eq!((socket.held(), socket.retry_at()), (Some(&1), None));
    let late = now + Duration::from_secs(1);
    assert!(!socket.take_retry_due(late), "time changes nothing");
    socket.note_ready(true, false);
    assert!(!socket.take_retry_due(late), "nor does an arrival");
    socket.note_ready(false, true);
    assert!(socket.take_retry_due(late) && !socket.take_retry_due(late), "said once");
    // It was announced, and another has taken the room.
    assert_eq!(socket.retry(late), None);
    assert!(socket.awaits_writable() && socket.held() == Some(&1) && socket.socket.sent.is_empty());
    socket.note_ready(false, true);
    assert!(socket.take_retry_due(late));
    assert_eq!(socket.retry(late), None);
    assert!(socket.has_room() && socket.held().is_none());
    assert!(send(&mut socket, late, 2));
    assert_eq!(socket.socket.sent, [[1], [2]], "in order");
}

#[test]
fn a_full_queue_below_the_socket_is_tried_again_after_a_while() {
    for (error, announces_room) in [(SendError::NoBuffers, true), (SendError::WouldBlock, false)] {
        let now = Instant::ZERO + Duration::from_secs(3);
        let mut socket = socket([error.clone(), error], announces_room);
        assert!(send(&mut socket, now, 1));
        assert_eq!((socket.retry_at(), socket.awaits_writable()), (Some(now + RETRY), false));
        socket.note_ready(false, true);
        assert!(!socket.take_retry_due(now), "the socket itself had room all the time");
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
fn what_the_system_refuses_is_lost_and_its_owner_is_named() {
    let now = Instant::ZERO;
    let mut socket = socket([SendError::TooLarge, SendError::NoBuffers, SendError::Refused("no route".into())], true);
    assert!(!send(&mut socket, now, 1));
    assert!(socket.has_room() && socket.held().is_none(), "the next batch may do");
    assert!(send(&mut socket, now, 2));
    assert_eq!(socket.retry(now + RETRY), Some((2, SendError::Refused("no route".into()))));
    assert!(socket.has_room() && socket.held().is_none());
    assert!(send(&mut socket, now, 3));
    assert_eq!(socket.socket.sent, [[3]]);
}

#[test]
fn the_rest_that_a_socket_kept_leaves_before_what_is_held() {
    let now = Instant::ZERO;
    let mut socket = socket([SendError::WouldBlock], true);
    assert!(send(&mut socket, now, 1));
    socket.socket.flushes = [Err(SendError::WouldBlock), Err(SendError::TooLarge)].into();
    socket.flush(now);
    assert_eq!(socket.socket.flushes.len(), 2, "not asked while there is no room");
    socket.retry(now);
    assert!(socket.awaits_writable() && socket.held() == Some(&1), "the rest found no room");
    // The rest is lost, which is no reason to keep what follows.
    socket.retry(now);
    assert!(socket.has_room() && socket.held().is_none());
    socket.socket.flushes = [Err(SendError::NoBuffers)].into();
    socket.flush(now);
    assert_eq!((socket.retry_at(), socket.held()), (Some(now + RETRY), None), "room is missed though nothing is held");
}

#[test]
fn a_socket_is_asked_until_there_is_no_more_and_not_for_ever_if_it_fails() {
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
    assert!(!socket.socket.has_arrived && socket.is_readable(), "it was taken note of");
}

#[test]
fn one_that_only_sends_receives_when_it_is_told_to() {
    let mut socket: LocalSocket<Toy, Scripted, u32> = LocalSocket::only_sending(Scripted::default());
    socket.note_ready(true, true);
    socket.socket.has_arrived = true;
    assert!(!socket.is_readable() && !socket.take_readable());
    assert!(socket.socket.has_arrived, "another processor takes it");
    socket.receive_here();
    assert!(socket.is_readable() && socket.take_readable());
}
