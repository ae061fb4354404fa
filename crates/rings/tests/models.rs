//! Loom models of a ring whose sides sleep. They compile the crate's own source with loom's atomics
//! and explore every order of steps that the memory model permits. A lost wake-up shows as a
//! deadlock, and a byte read too early as a wrong byte.

/// Replaces `src/primitives.rs`.
mod primitives {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}

#[path = "../src/copy.rs"]
mod copy;
#[allow(dead_code, reason = "the models need a part of it")]
#[path = "../src/ring.rs"]
pub mod ring;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use self::primitives::AtomicU64;
use self::ring::{CONTROL_WORDS, Consumer, Found, Place, Producer, SharedWords};

/// Number of preemptions that suffices to find every fault put into the source to test the models.
const PREEMPTIONS_MAX: usize = 3;

/// Length of the shortest ring: a word.
const LEN: usize = 8;
const PLACE: Place = Place { control: 0, data: CONTROL_WORDS, len: LEN };

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

#[derive(Clone)]
struct Words(Arc<Vec<AtomicU64>>);

impl SharedWords for Words {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// A socket, reduced to what sleeping depends on: a wake-up stays until it is taken.
#[derive(Default)]
struct Socket {
    is_woken: Mutex<bool>,
    signal: Condvar,
}

impl Socket {
    fn wake(&self) {
        *self.is_woken.lock().expect("no thread panics while it holds the lock") = true;
        self.signal.notify_one();
    }

    fn sleep(&self) {
        let mut is_woken = self.is_woken.lock().expect("no thread panics while it holds the lock");
        while !*is_woken {
            is_woken = self.signal.wait(is_woken).expect("no thread panics while it holds the lock");
        }
        *is_woken = false;
    }
}

/// The ends of a ring, used as in `blocking.rs`.
struct Writer {
    ring: Producer<Words>,
    reader: Arc<Socket>,
    own: Arc<Socket>,
}

struct Reader {
    ring: Consumer<Words>,
    writer: Arc<Socket>,
    own: Arc<Socket>,
}

fn ends() -> (Writer, Reader) {
    let words = Words(Arc::new((0..CONTROL_WORDS + LEN / 8).map(|_| AtomicU64::new(0)).collect()));
    let (to_writer, to_reader) = (Arc::new(Socket::default()), Arc::new(Socket::default()));
    let writer = Writer {
        ring: Producer::new(words.clone(), PLACE),
        reader: Arc::clone(&to_reader),
        own: Arc::clone(&to_writer),
    };
    (writer, Reader { ring: Consumer::new(words, PLACE), writer: to_writer, own: to_reader })
}

impl Writer {
    fn write_all(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let len = self.ring.write(bytes).expect("an honest reader");
            bytes = &bytes[len..];
            if len > 0 {
                self.wake();
            } else {
                let own = &self.own;
                let _slept = self.ring.sleep_unless_space(|| own.sleep()).expect("an honest reader");
            }
        }
    }

    fn finish(&mut self) {
        self.ring.finish();
        self.wake();
    }

    fn wake(&self) {
        if self.ring.takes_sleep() {
            self.reader.wake();
        }
    }
}

impl Reader {
    /// Reads to the end, `len_max` bytes at a time.
    fn read_all(&mut self, len_max: usize) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match self.ring.look().expect("an honest writer") {
                Found::Bytes => {
                    let mut bytes = [0; LEN];
                    let len = self.ring.read(&mut bytes[..len_max]).expect("an honest writer");
                    all.extend_from_slice(&bytes[..len]);
                    if self.ring.takes_sleep() {
                        self.writer.wake();
                    }
                }
                Found::End => return all,
                Found::Reset(_) => panic!("it was finished"),
                Found::Nothing => {
                    let own = &self.own;
                    let _slept = self.ring.sleep_unless_found(|| own.sleep()).expect("an honest writer");
                }
            }
        }
    }
}

/// Writes `writes` and the end on one thread, and reads on the other.
fn carry(writes: &'static [&'static [u8]], len_max: usize) {
    explore(move || {
        let (mut writer, mut reader) = ends();
        let thread = thread::spawn(move || {
            writes.iter().for_each(|bytes| writer.write_all(bytes));
            writer.finish();
        });
        assert_eq!(reader.read_all(len_max), writes.concat());
        thread.join().expect("the writer ends");
    });
}

#[test]
fn a_reader_that_sleeps_is_woken_for_bytes_and_for_the_end() {
    carry(&[b"ab", b"c"], LEN);
}

#[test]
fn a_writer_that_sleeps_is_woken_when_the_ring_has_space() {
    carry(&[b"abcdefgh", b"ijk"], LEN);
}

#[test]
fn bytes_wrap_around_while_a_reader_takes_few_at_a_time() {
    carry(&[b"abcdef", b"ghij"], 5);
}
