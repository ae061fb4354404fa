//! Whole transfers over the in-memory link: complete, refused and resumed ones.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use quic_endpoint::identity::{Fingerprint, KeyPair, PublicKey};
use units::Rng;

use super::control::read_message;
use super::link::Control;
use super::memory::{MemoryLink, pair};
use super::message::Message;
use super::proof::{Proof, ProofContext};
use super::store::Refusal;
use super::ticket::Secret;
use super::*;

mod authentication;
mod changing_files;
mod deletions;
mod disk_faults;
mod failures;
mod hostile_peers;
mod interruptions;
mod keep;
mod left_out;
mod resume;
mod room;
mod small_files;
mod streams;
mod trees;

/// Segments of 1 KiB: small files have many.
const SEGMENT_BYTES: u64 = 1024;

/// A sender's and a receiver's directory, and the way to transfer between them.
struct Fixture {
    top: tempfile::TempDir,
    send: SendOptions,
    receive: ReceiveOptions,
    /// First byte of the sender's key.
    sender: u8,
    /// Protocol revision of both ends.
    revision: Revision,
}

/// Results of both ends.
struct Outcome {
    sent: Result<Summary, TransferError>,
    received: Result<Summary, TransferError>,
    /// Whether the receiver has marked the ticket as used: everything is in place.
    is_spent: bool,
    /// Events in JSON, which shows that every event can be expressed.
    sender_events: Vec<serde_json::Value>,
    receiver_events: Vec<serde_json::Value>,
}

/// Accepts every sender.
struct AcceptAll {
    completed: bool,
}

impl Authoriser for AcceptAll {
    fn authorise(&mut self, _: &ProofContext, proof: Option<&Proof>) -> Result<Option<Proof>, Refusal> {
        assert!(proof.is_none());
        Ok(None)
    }

    fn complete(&mut self) -> Result<(), String> {
        self.completed = true;
        Ok(())
    }
}

impl Fixture {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("out")).unwrap();
        fs::create_dir(top.path().join("in")).unwrap();
        let send = SendOptions { threads: 3, segment_bytes: SEGMENT_BYTES, ..SendOptions::default() };
        let receive = ReceiveOptions { threads: 3, ..ReceiveOptions::default() };
        Self { top, send, receive, sender: 1, revision: Revision::LATEST }
    }

    fn source(&self, name: &str) -> PathBuf {
        self.top.path().join("out").join(name)
    }

    fn target(&self, name: &str) -> PathBuf {
        self.top.path().join("in").join(name)
    }

    /// Writes a source file of random bytes.
    fn write(&self, name: &str, seed: u64, len: usize) -> PathBuf {
        let path = self.source(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, random_bytes(seed, len)).unwrap();
        path
    }

    fn transfer(&self, paths: &[PathBuf]) -> Outcome {
        self.transfer_with(paths, |_| {})
    }

    fn transfer_with(&self, paths: &[PathBuf], prepare: impl FnOnce(&MemoryLink)) -> Outcome {
        let source = Source::scan(paths, &CancelToken::new()).unwrap();
        self.transfer_source(&source, prepare)
    }

    fn transfer_source(&self, source: &Source, prepare: impl FnOnce(&MemoryLink)) -> Outcome {
        self.transfer_observed(source, prepare, &())
    }

    /// Does the same as `transfer_source`, and passes the sender's events to `watch`, too.
    fn transfer_observed(&self, source: &Source, prepare: impl FnOnce(&MemoryLink), watch: &dyn Events) -> Outcome {
        let (sender, receiver) = pair();
        *sender.0.faults().revision.lock().unwrap() = self.revision;
        prepare(&sender.0);
        let context = self.context();
        let mut authoriser = AcceptAll { completed: false };
        let (sender_events, receiver_events) = (Recorder::default(), Recorder::default());
        let both = Both(watch, &sender_events);
        let (sent, received) = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let (link, control) = receiver;
                let directory = self.top.path().join("in");
                receive::run(&link, control, &context, &directory, &self.receive, &mut authoriser, &receiver_events)
            });
            let (link, control) = sender;
            let sent = send::run(&link, control, &context, &Credential::Key, source, &self.send, &both);
            (sent, receiving.join().unwrap())
        });
        match &received {
            // The last message notifies the sender, and the connection may end before it: the
            // ticket is spent then, and the sender is notified when it returns.
            Err(TransferError::Connection(_)) if authoriser.completed => {
                let events = receiver_events.0.lock().unwrap();
                assert!(events.iter().all(|event| event["event"] != "file_failed"), "all is in place: {events:?}");
            }
            _ => {
                let complete = received.as_ref().is_ok_and(|summary| summary.failed == 0 && !summary.dry_run);
                assert_eq!(authoriser.completed, complete, "spent if and only if all is in place: {received:?}");
            }
        }
        Outcome {
            sent,
            received,
            is_spent: authoriser.completed,
            sender_events: sender_events.0.into_inner().unwrap(),
            receiver_events: receiver_events.0.into_inner().unwrap(),
        }
    }

    /// Runs a receiver with an accepted sender that continues with `script`. Returns the error of
    /// the receiver. The value of `script` is kept until then.
    fn fail_receiver<T>(&self, script: impl FnOnce(&MemoryLink, Control) -> T) -> TransferError {
        let ((link, mut control), receiver) = pair();
        *link.faults().revision.lock().unwrap() = self.revision;
        let context = self.context();
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let (link, control) = receiver;
                let (directory, mut anybody) = (self.top.path().join("in"), AcceptAll { completed: false });
                receive::run(&link, control, &context, &directory, &self.receive, &mut anybody, &())
            });
            say(&mut control, &Message::Hello { version: 1, base_log2: 10, proof: None, run: None }).unwrap();
            assert!(matches!(read_message(&mut control.reader), Ok(Some(Message::Accepted { .. }))));
            let _kept = script(&link, control);
            receiving.join().unwrap().unwrap_err()
        })
    }

    fn context(&self) -> ProofContext {
        ProofContext::new(|_, _| [1; 32], PublicKey::from_bytes([self.sender; 32]), Fingerprint::from_bytes([2; 32]))
    }
}

impl Outcome {
    /// Returns both summaries of a transfer that ran to its end.
    fn summaries(&self) -> (&Summary, &Summary) {
        match (&self.sent, &self.received) {
            (Ok(sent), Ok(received)) => (sent, received),
            (sent, received) => panic!("sender: {sent:?}\nreceiver: {received:?}"),
        }
    }

    /// Returns both summaries of a transfer in which everything arrived.
    fn complete(&self) -> (&Summary, &Summary) {
        let (sent, received) = self.summaries();
        assert_eq!((sent.failed, received.failed), (0, 0), "{:#?}", self.sender_events);
        assert_eq!((sent.files_done, received.files_done), (sent.files, sent.files));
        assert_eq!((received.bytes, received.bytes_moved), (sent.bytes, sent.bytes_moved));
        (sent, received)
    }

    /// Returns the failed paths and reasons, as both sides reported them.
    fn failures(&self) -> BTreeMap<String, String> {
        let failed = |events: &[serde_json::Value]| -> BTreeMap<String, String> {
            let failed = events.iter().filter(|event| event["event"] == "file_failed");
            failed.map(|event| (text(&event["path"]), text(&event["error"]["kind"]))).collect()
        };
        let reported = failed(&self.sender_events);
        assert_eq!(reported, failed(&self.receiver_events), "both sides report the same");
        reported
    }
}

/// Passes events to two consumers.
struct Both<'a>(&'a dyn Events, &'a Recorder);

impl Events for Both<'_> {
    fn event(&self, event: TransferEvent<'_>) {
        self.1.0.lock().unwrap().push(serde_json::to_value(&event).unwrap());
        self.0.event(event);
    }
}

/// Records events.
#[derive(Default)]
struct Recorder(Mutex<Vec<serde_json::Value>>);

impl Events for Recorder {
    fn event(&self, event: TransferEvent<'_>) {
        self.0.lock().unwrap().push(serde_json::to_value(&event).unwrap());
    }
}

/// Sends a message on the control stream.
fn say(control: &mut Control, message: &Message) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    control.writer.write_all(&bytes)
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::from_seed(seed).fill(&mut bytes);
    bytes
}

/// Returns everything below `top`: content, time and mode by path.
fn snapshot(top: &Path) -> BTreeMap<PathBuf, (Option<Vec<u8>>, std::time::SystemTime, u32)> {
    use std::os::unix::fs::PermissionsExt;
    let mut found = BTreeMap::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(directory) = waiting.pop() {
        for child in fs::read_dir(&directory).unwrap() {
            let path = child.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = metadata.is_file().then(|| fs::read(&path).unwrap());
            let relative = path.strip_prefix(top).unwrap().to_owned();
            found.insert(relative, (content, metadata.modified().unwrap(), metadata.permissions().mode() & 0o777));
            if metadata.is_dir() {
                waiting.push(path);
            }
        }
    }
    found
}

/// Returns the names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|child| child.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
