//! Measures the cost of reading, hashing and writing files separately, and the cost of a whole
//! transfer to verify the sum.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use litz::identity::{self, KeyPair};
use litz::{Connection, Endpoint, EndpointConfig, TransportConfig};
use net::MonotonicClock;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use transfer::{
    Authoriser, CancelToken, ConnectionLink, Credential, ReceiveOptions, SendOptions, Source, TransferEvent, control,
    peer_key, proof_context, receive, send, transport,
};
use units::{Duration, Rng};

use super::failure::{Failure, to_message};
use super::fit::median;
use super::row::Part;
use super::run::{CONNECT_TIMEOUT, NOT_CONNECTED};

/// Size of the file: smaller than the caches of a disk, many times larger than those of a
/// processor.
const FILE_BYTES: usize = 64 << 20;

/// Block size of the transfer's reads and writes.
const BLOCK_LEN: usize = 256 * 1024;

/// Threads at each end. The cost per byte does not depend on their number, and one thread avoids
/// contention.
const THREADS: usize = 1;

/// Ends a stalled transfer early, instead of after half a minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Costs in nanoseconds per byte, and how they were measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FileCosts {
    pub(crate) read_byte_ns: f64,
    pub(crate) hash_byte_ns: f64,
    pub(crate) write_byte_ns: f64,
    /// CPU time of all threads of both ends in a whole transfer, including its start and its final
    /// flush. None if all transfers failed.
    pub(crate) transfer_byte_ns: Option<f64>,
    /// Error of the last failed transfer.
    pub(crate) transfer_failure: Option<String>,
}

impl FileCosts {
    /// The cost of one part.
    pub(crate) fn byte_ns(&self, part: Part) -> f64 {
        match part {
            Part::FileRead => self.read_byte_ns,
            Part::FileHash => self.hash_byte_ns,
            Part::FileWrite => self.write_byte_ns,
            _ => 0.0,
        }
    }
}

/// Measures in a new folder in `parent`, or in the system's temporary folder.
pub(crate) fn measure(
    parent: Option<&Path>,
    datagram_size: usize,
    runs: usize,
    cancel: &CancelToken,
) -> Result<FileCosts, Failure> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    let failed = |error: io::Error| {
        let place = parent.display();
        Failure::Error(format!("cannot measure files in {place}: {error} (choose another folder with --dir)"))
    };
    let folder = tempfile::Builder::new().prefix("litz-profile-").tempdir_in(&parent).map_err(failed)?;
    let source = folder.path().join("source.bin");
    let mut bytes = vec![0; FILE_BYTES];
    Rng::from_seed(1).fill(&mut bytes);
    std::fs::write(&source, &bytes).map_err(failed)?;
    let mut found = [const { Vec::new() }; 3];
    let (mut transfers, mut transfer_failure) = (Vec::new(), None);
    for run in 0..runs {
        if cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        let target = folder.path().join(format!("in-{run}"));
        std::fs::create_dir(&target).map_err(failed)?;
        let stages = stages(&source, &target.join("written.bin"), &mut bytes).map_err(failed)?;
        for (found, stage) in found.iter_mut().zip(stages) {
            found.push(stage);
        }
        // The transfer only verifies the tables, so its failure is reported and does not end the
        // profile.
        match transfer(&source, &target, datagram_size, cancel) {
            Ok(byte_ns) => transfers.push(byte_ns),
            Err(Failure::Error(failure)) => transfer_failure = Some(failure),
            Err(interrupted) => return Err(interrupted),
        }
        // Frees the disk space for the next run.
        std::fs::remove_dir_all(&target).map_err(failed)?;
    }
    let [read_byte_ns, hash_byte_ns, write_byte_ns] = found.map(|found| median(&found));
    let transfer_byte_ns = (!transfers.is_empty()).then(|| median(&transfers));
    Ok(FileCosts { read_byte_ns, hash_byte_ns, write_byte_ns, transfer_byte_ns, transfer_failure })
}

/// Measures reading, hashing and writing, in nanoseconds per byte.
fn stages(source: &Path, target: &Path, bytes: &mut [u8]) -> io::Result<[f64; 3]> {
    let (from, to) = (File::open(source)?, OpenOptions::new().write(true).create_new(true).open(target)?);
    // Reserves the space first, as the transfer does.
    to.set_len(bytes.len() as u64)?;
    let clock = MonotonicClock::start();
    let (mut at, mut spent) = (0, [Duration::ZERO; 3]);
    let mut hasher = blake3::Hasher::new();
    for block in bytes.chunks_mut(BLOCK_LEN) {
        let start = clock.now();
        from.read_exact_at(block, at)?;
        let read = clock.now();
        hasher.update(block);
        let hashed = clock.now();
        to.write_all_at(block, at)?;
        let written = clock.now();
        at += block.len() as u64;
        for (spent, (from, to)) in spent.iter_mut().zip([(start, read), (read, hashed), (hashed, written)]) {
            *spent += to.saturating_since(from);
        }
    }
    std::hint::black_box(hasher.finalize());
    Ok(spent.map(|spent| spent.as_nanos() as f64 / at as f64))
}

/// Ignores events.
const SILENT: fn(TransferEvent<'_>) = |_| {};

/// Authorises the one key of this process.
struct OneKey;

impl Authoriser for OneKey {
    fn authorise(
        &mut self,
        _: &transfer::ProofContext,
        _: Option<&transfer::Proof>,
    ) -> Result<Option<transfer::Proof>, transfer::Refusal> {
        Ok(None)
    }

    fn complete(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// CPU time of this process so far.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_secs(time.tv_sec as u64) + Duration::from_nanos(time.tv_nsec as u64)
}

/// Runs a transfer over loopback; returns the CPU time of both ends in nanoseconds per byte.
fn transfer(source: &Path, target: &Path, datagram_size: usize, cancel: &CancelToken) -> Result<f64, Failure> {
    let failed = |error: String| Failure::Error(format!("a transfer over loopback failed: {error}"));
    let key = KeyPair::generate().map_err(|error| failed(error.to_string()))?;
    let fingerprint = key.public().fingerprint();
    let server_tls = identity::server_config(&key, transfer::PROTOCOLS).map_err(|error| failed(error.to_string()))?;
    let client_tls = identity::client_config(&key, &[fingerprint], transfer::PROTOCOLS)
        .map_err(|error| failed(error.to_string()))?;
    let transport =
        transport(TransportConfig::default().with_datagram_size(datagram_size).with_idle_timeout(IDLE_TIMEOUT));
    let config = EndpointConfig::loopback().with_transport(transport);
    let bind = |config| Endpoint::bind(config).map_err(|error| failed(error.to_string()));
    let server = bind(config.clone().with_server_tls(server_tls))?;
    let client = bind(config)?;
    let list = Source::scan(&[source.to_owned()], cancel).map_err(|error| failed(error.to_string()))?;
    let begin = process_time();
    std::thread::scope(|scope| {
        // Each end keeps its connection until both are done, because dropping it discards data in
        // flight.
        let receiving = scope.spawn(|| -> Result<Connection, String> {
            let connection = server.accept_timeout(CONNECT_TIMEOUT).map_err(to_message)?.ok_or(NOT_CONNECTED)?;
            let halves = connection.accept_bi_timeout(CONNECT_TIMEOUT).map_err(to_message)?.ok_or(NOT_CONNECTED)?;
            let context =
                proof_context(&connection, peer_key(&connection).map_err(|error| error.to_string())?, fingerprint)
                    .map_err(|error| error.to_string())?;
            let options = ReceiveOptions::default().with_threads(THREADS).with_cancel(cancel.clone());
            let link = ConnectionLink::new(&connection);
            receive::run(&link, control(halves), &context, target, &options, &mut OneKey, &SILENT)
                .map_err(|error| format!("receiving: {error}"))?;
            Ok(connection)
        });
        let sending = || -> Result<Connection, String> {
            let tls = client_tls.config.clone();
            let connection = client.connect(server.local_addr(), "litz.invalid", tls).map_err(to_message)?;
            let halves = connection.open_bi().map_err(to_message)?;
            let context = proof_context(&connection, key.public(), fingerprint).map_err(|error| error.to_string())?;
            let options = SendOptions::default().with_threads(THREADS).with_cancel(cancel.clone());
            let link = ConnectionLink::new(&connection);
            send::run(&link, control(halves), &context, &Credential::Key, &list, &options, &SILENT)
                .map_err(|error| format!("sending: {error}"))?;
            Ok(connection)
        };
        let sent = sending();
        let received = receiving.join().unwrap_or_else(|_| Err("the receiver panicked".to_owned()));
        if cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        let _both = (sent.map_err(failed)?, received.map_err(failed)?);
        Ok(process_time().saturating_sub(begin).as_nanos() as f64 / FILE_BYTES as f64)
    })
}
