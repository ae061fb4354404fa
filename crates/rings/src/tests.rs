//! Rings over ordinary memory, in lock-step and between threads, and both ends of a connection.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use units::Rng;

use crate::blocking::{Reader, Writer};
use crate::ends::{DaemonEnd, create, open};
use crate::memory::{Memory, RING_LEN_MIN, memory_len};
use crate::packets;
use crate::ring::{CONTROL_WORDS, Consumer, Found, Place, Producer, Reset, SharedWords, Violation};

/// Ordinary memory, so that Miri can check each access.
#[derive(Clone)]
struct Words(Arc<[AtomicU64]>);

impl SharedWords for Words {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

const LEN: usize = 64;
const PLACE: Place = Place { control: 0, data: CONTROL_WORDS, len: LEN };

/// Words of the state that each side publishes, as in `docs/spec/daemon.md`.
const WRITTEN: usize = 0;
const STATE: usize = 1;
const READ: usize = 16;

fn words() -> Words {
    Words((0..CONTROL_WORDS + LEN / 8).map(|_| AtomicU64::new(0)).collect())
}

/// Creates both sides of a ring on which `count` bytes were written and read before.
fn ring_after(count: u64) -> (Words, Producer<Words>, Consumer<Words>) {
    let words = words();
    let (producer, consumer) =
        (Producer::after(words.clone(), PLACE, count), Consumer::after(words.clone(), PLACE, count));
    (words, producer, consumer)
}

fn lie(words: &Words, word: usize, value: u64) {
    words.0[word].store(value, Ordering::Relaxed);
}

#[test]
fn bytes_come_out_as_they_went_in_at_each_position_and_across_the_wrap_of_the_counts() {
    for seed in 0..if cfg!(miri) { 2 } else { 50 } {
        let mut rng = Rng::from_seed(seed);
        let (_, mut producer, mut consumer) = ring_after(0_u64.wrapping_sub(rng.below(1000)));
        let (mut expected, mut buffer) = (VecDeque::<u8>::new(), [0; LEN + 9]);
        for _ in 0..if cfg!(miri) { 50 } else { 2000 } {
            let len = rng.below(buffer.len() as u64 + 1) as usize;
            if rng.below(2) == 0 {
                let bytes = &mut buffer[..len];
                rng.fill(bytes);
                let written = producer.write(bytes).unwrap();
                assert_eq!(written, len.min(LEN - expected.len()), "seed {seed}");
                expected.extend(&bytes[..written]);
            } else {
                let found = if expected.is_empty() { Found::Nothing } else { Found::Bytes };
                assert_eq!(consumer.look(), Ok(found), "seed {seed}");
                let read = consumer.read(&mut buffer[..len]).unwrap();
                assert_eq!(read, len.min(expected.len()), "seed {seed}");
                assert!(expected.drain(..read).eq(buffer[..read].iter().copied()), "seed {seed}");
            }
            assert_eq!(producer.space(), Ok(LEN - expected.len()), "seed {seed}");
        }
    }
}

#[test]
fn a_full_ring_takes_nothing_and_the_end_comes_after_the_last_byte() {
    let (_, mut producer, mut consumer) = ring_after(5);
    assert_eq!(producer.write(&[1; LEN + 1]), Ok(LEN));
    assert_eq!(producer.write(&[2]), Ok(0));
    producer.finish();
    assert_eq!(consumer.look(), Ok(Found::Bytes));
    let mut out = [0; LEN];
    assert_eq!(consumer.read(&mut out), Ok(LEN));
    assert_eq!((out, consumer.look()), ([1; LEN], Ok(Found::End)));
    producer.reset(Reset::Violated);
    assert_eq!(consumer.look(), Ok(Found::Reset(Reset::Violated)));
}

#[test]
fn a_reset_comes_before_the_bytes_that_are_left() {
    let (_, mut producer, mut consumer) = ring_after(0);
    assert_eq!(producer.write(&[1]), Ok(1));
    producer.reset(Reset::Broken);
    assert_eq!(consumer.look(), Ok(Found::Reset(Reset::Broken)));
}

#[test]
fn a_writer_is_woken_when_half_of_the_ring_is_free() {
    let (_, mut producer, mut consumer) = ring_after(0);
    producer.write(&[1; LEN]).unwrap();
    assert_eq!(consumer.look(), Ok(Found::Bytes));
    producer.announce_sleep();
    consumer.read(&mut [0; LEN / 2 - 1]).unwrap();
    assert!(!consumer.takes_sleep());
    consumer.read(&mut [0; 1]).unwrap();
    assert!(consumer.takes_sleep() && !consumer.takes_sleep());
}

#[test]
fn impossible_counts_of_the_reader_are_found() {
    // (count that the reader has read, the lie)
    for (honest, lie_of_read) in [(0, 41), (0, 0_u64.wrapping_sub(1)), (30, 29), (30, 1 << 63), (40, u64::MAX)] {
        let (words, mut producer, mut consumer) = ring_after(0);
        producer.write(&[1; 40]).unwrap();
        consumer.read(&mut vec![0; honest]).unwrap();
        producer.space().unwrap();
        lie(&words, READ, lie_of_read);
        assert_eq!(producer.space(), Err(Violation), "{honest} {lie_of_read}");
        // Its previous knowledge still holds: it writes within that space, and then checks.
        assert_eq!(producer.write(&[1; LEN + 1]), Err(Violation), "{honest} {lie_of_read}");
    }
}

#[test]
fn impossible_counts_of_the_writer_are_found() {
    // (count that the writer has written, count read of it, the lie)
    for (honest, read, lie_of_written) in [
        (0, 0, LEN as u64 + 1),
        (0, 0, u64::MAX),
        (40, 0, 39),
        (40, 20, 19),
        (40, 40, 0),
        (40, 20, 85),
        (9, 0, 1 << 32),
    ] {
        let (words, mut producer, mut consumer) = ring_after(0);
        producer.write(&vec![1; honest]).unwrap();
        consumer.unread().unwrap();
        consumer.read(&mut vec![0; read]).unwrap();
        lie(&words, WRITTEN, lie_of_written);
        assert_eq!(consumer.look(), Err(Violation), "{honest} {read} {lie_of_written}");
        assert_eq!(consumer.read(&mut [0; 2 * LEN]), Err(Violation), "{honest} {read} {lie_of_written}");
    }
    let (words, _, mut consumer) = ring_after(0);
    lie(&words, STATE, 4);
    assert_eq!(consumer.look(), Err(Violation));
}

#[test]
fn two_threads_exchange_bytes_over_ordinary_memory() {
    let total = if cfg!(miri) { 500 } else { 1 << 17 };
    let (_, mut producer, mut consumer) = ring_after(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut sent = 0;
            while sent < total {
                let bytes: Vec<u8> = (sent..total.min(sent + 1 + sent % 77)).map(pattern).collect();
                sent += producer.write(&bytes).expect("an honest reader");
                std::thread::yield_now();
            }
            producer.finish();
        });
        let (mut taken, mut buffer) = (0, [0; 50]);
        loop {
            match consumer.look().expect("an honest writer") {
                Found::Bytes => {
                    let len = 1 + taken % buffer.len();
                    let len = consumer.read(&mut buffer[..len]).expect("an honest writer");
                    assert!(buffer[..len].iter().copied().eq((taken..taken + len).map(pattern)), "{taken}");
                    taken += len;
                }
                Found::Nothing => std::thread::yield_now(),
                Found::End => break,
                Found::Reset(_) => panic!("it was finished"),
            }
        }
        assert_eq!(taken, total);
    });
}

fn pattern(position: usize) -> u8 {
    (position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

/// Returns the daemon's end and the program's, both with blocking calls.
fn connection() -> ((Reader, Writer), (Reader, Writer)) {
    let (daemon, passed) = create(RING_LEN_MIN).unwrap();
    let DaemonEnd { from_program: (consumer, up), to_program: (producer, down) } = daemon;
    up.set_nonblocking(false).unwrap();
    down.set_nonblocking(false).unwrap();
    ((Reader::new(consumer, up), Writer::new(producer, down)), open(passed).unwrap())
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn both_directions_carry_bytes_at_the_same_time_and_end_one_by_one() {
    const TOTAL: usize = 20 << 20;
    let (daemon, program) = connection();
    let send = |mut writer: Writer, seed: u64| {
        let (mut rng, bytes) = (Rng::from_seed(seed), (0..TOTAL).map(pattern).collect::<Vec<u8>>());
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let len = rest.len().min(1 + rng.below(20_000) as usize);
            writer.write_all(&rest[..len]).expect("it is read");
            rest = &rest[len..];
        }
        writer.finish();
        writer.finish();
        assert_eq!(writer.write(&[1]).unwrap_err().kind(), ErrorKind::BrokenPipe);
        // The reader still needs its written data.
        drop(writer);
    };
    let receive = |mut reader: Reader, seed: u64| {
        let (mut rng, mut taken, mut buffer) = (Rng::from_seed(seed), 0, vec![0; 20_000]);
        loop {
            let len = 1 + rng.below(buffer.len() as u64) as usize;
            match reader.read(&mut buffer[..len]).expect("it is written") {
                0 => break,
                len => {
                    assert!(buffer[..len].iter().copied().eq((taken..taken + len).map(pattern)), "{taken}");
                    taken += len;
                }
            }
        }
        assert_eq!(taken, TOTAL);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| send(daemon.1, 1));
        scope.spawn(|| receive(daemon.0, 2));
        scope.spawn(|| send(program.1, 3));
        receive(program.0, 4);
    });
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn a_writer_that_is_dropped_early_resets_a_reader_that_sleeps() {
    let ((mut reader, _up), (_down, mut writer)) = connection();
    writer.write_all(b"half").unwrap();
    let mut half = [0; 4];
    reader.read_exact(&mut half).unwrap();
    std::thread::scope(|scope| {
        let read = scope.spawn(|| reader.read(&mut [0; 9]));
        drop(writer);
        let error = read.join().expect("it ends").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(error.to_string().contains("reset"), "{error}");
    });
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn a_process_that_has_ended_leaves_its_bytes_and_then_a_reset() {
    let (daemon, passed) = create(RING_LEN_MIN).unwrap();
    let (mut reader, _writer) = open(passed).unwrap();
    let (mut producer, socket) = daemon.to_program;
    producer.write(b"last").unwrap();
    // A killed process behaves this way: it never reports that it has finished.
    drop((producer, socket));
    let mut all = Vec::new();
    let error = reader.read_to_end(&mut all).unwrap_err();
    assert_eq!((all, error.kind()), (b"last".to_vec(), ErrorKind::ConnectionReset));
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn a_writer_learns_that_its_reader_has_gone_also_while_it_waits() {
    let ((reader, _up), (_down, mut writer)) = connection();
    std::thread::scope(|scope| {
        let written = scope.spawn(|| writer.write_all(&vec![0; 1 << 20]));
        drop(reader);
        assert_eq!(written.join().expect("it ends").unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
    assert_eq!(writer.write(&[1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn a_call_waits_no_longer_than_its_timeout() {
    let ((mut reader, _up), (_down, mut writer)) = connection();
    let time = Some(Duration::from_millis(1));
    reader.set_timeout(time).unwrap();
    writer.set_timeout(time).unwrap();
    assert_eq!(reader.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    let error = writer.write_all(&vec![0; RING_LEN_MIN + 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // Nothing is lost.
    let mut all = vec![1; RING_LEN_MIN];
    reader.read_exact(&mut all).unwrap();
    assert_eq!(all, vec![0; RING_LEN_MIN]);
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn the_memory_can_neither_shrink_nor_grow_and_other_files_are_refused() {
    let (_, file) = Memory::create(RING_LEN_MIN).unwrap();
    for len in [0, memory_len(RING_LEN_MIN) - 4096, memory_len(2 * RING_LEN_MIN)] {
        assert_eq!(ftruncate(&file, len as u64), Err(Errno::PERM), "{len}");
    }
    let refused = |file: OwnedFd| Memory::open(file).unwrap_err().kind();
    let unsealed = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&unsealed, memory_len(RING_LEN_MIN) as u64).unwrap();
    assert_eq!(refused(unsealed), ErrorKind::InvalidData);
    for len in [0, memory_len(RING_LEN_MIN) - 1, memory_len(RING_LEN_MIN) + 4096, memory_len(2)] {
        let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, len as u64).unwrap();
        rustix::fs::fcntl_add_seals(&file, rustix::fs::fcntl_get_seals(Memory::create(4096).unwrap().1).unwrap())
            .unwrap();
        assert_eq!(refused(file), ErrorKind::InvalidData, "{len}");
    }
    assert!(Memory::open(file).is_ok());
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn a_message_comes_whole_and_with_no_more_descriptors_than_are_expected() {
    let kind = rustix::net::SocketType::SEQPACKET;
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let (one, other) = rustix::net::socketpair(rustix::net::AddressFamily::UNIX, kind, flags, None).unwrap();
    let mut buffer = [0; 8];
    let mut exchange = |bytes: &[u8], count: usize, count_max| -> io::Result<(Vec<u8>, usize)> {
        packets::send(one.as_fd(), bytes, &vec![one.as_fd(); count])?;
        let (len, descriptors) = packets::receive(other.as_fd(), &mut buffer, count_max)?;
        Ok((buffer[..len].to_vec(), descriptors.len()))
    };
    assert_eq!(exchange(b"none", 0, 1).unwrap(), (b"none".to_vec(), 0));
    assert_eq!(exchange(b"three", 3, 3).unwrap(), (b"three".to_vec(), 3));
    assert_eq!(exchange(b"two", 2, 1).unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(exchange(b"too long", 1, 1).unwrap().1, 1);
    assert_eq!(exchange(b"much too long", 1, 1).unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(exchange(b"next", 0, 1).unwrap(), (b"next".to_vec(), 0));
}
