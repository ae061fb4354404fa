//! A file from tmpfs to tmpfs with the `litz` command, compared with the bound that the machine
//! sets.
//!
//! A program that sends, hashes and copies each byte, one after the other, takes the sum of the
//! three times. The parts are measured in the same round: the rate of Litz's bulk test, blake3 with
//! one thread over the same file, and reading and writing the same file.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::process::Process;
use crate::contender::Failure;
use crate::namespaces::{CLIENT, SERVER, SERVER_ADDRESS};

/// The mount point of tmpfs.
const TMPFS: &str = "/dev/shm";
/// Bytes per read and write of the copy.
const BLOCK_LEN: usize = 1 << 20;
/// A transfer that takes longer has failed.
const TRANSFER_LIMIT: Duration = Duration::from_secs(120);

/// The rates of one round, bits per second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileFigures {
    pub network_bps: f64,
    pub hash_bps: f64,
    pub copy_bps: f64,
    pub bound_bps: f64,
    /// Zero if the transfer failed.
    pub litz_bps: f64,
}

/// The folder with the file, removed when dropped.
pub struct TestFile {
    folder: PathBuf,
    source: PathBuf,
    len: u64,
    command: PathBuf,
}

impl TestFile {
    /// Makes a file of `len` bytes; `command` is the `litz` to measure.
    pub fn make(len: u64, command: &Path) -> Result<Self, Failure> {
        if !command.is_file() {
            return Err(format!("no litz command at {}: build it, or name it with --litz", command.display()).into());
        }
        let folder = Path::new(TMPFS).join(format!("litz-bench-{}", std::process::id()));
        let source = folder.join("source");
        let files = Self { folder, source, len, command: command.to_owned() };
        std::fs::create_dir_all(&files.folder)?;
        let mut file = File::create(&files.source)?;
        let mut block = vec![0_u8; BLOCK_LEN];
        let mut state = 1_u64;
        for written in (0..len).step_by(BLOCK_LEN) {
            for word in block.chunks_exact_mut(8) {
                // A linear congruential generator: no two blocks are alike.
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                word.copy_from_slice(&state.to_le_bytes());
            }
            let wanted = usize::try_from(len - written).unwrap_or(BLOCK_LEN).min(BLOCK_LEN);
            file.write_all(&block[..wanted])?;
        }
        Ok(files)
    }

    /// One round; `network_bps` is the rate of the bulk test in it.
    pub fn measure(&self, network_bps: f64) -> Result<FileFigures, Failure> {
        let bits = self.len as f64 * 8.0;
        let hash_bps = bits / self.hash()?.as_secs_f64();
        let copy_bps = bits / self.copy()?.as_secs_f64();
        let litz_bps = match self.transfer() {
            Ok(time) => bits / time.as_secs_f64(),
            Err(error) => {
                eprintln!("\nthe transfer failed: {error}");
                0.0
            }
        };
        Ok(FileFigures {
            network_bps,
            hash_bps,
            copy_bps,
            bound_bps: bound(&[network_bps, hash_bps, copy_bps]),
            litz_bps,
        })
    }

    fn hash(&self) -> Result<Duration, Failure> {
        let mut file = File::open(&self.source)?;
        let mut block = vec![0; BLOCK_LEN];
        let mut hasher = blake3::Hasher::new();
        let mut spent = Duration::ZERO;
        loop {
            let len = file.read(&mut block)?;
            if len == 0 {
                std::hint::black_box(hasher.finalize());
                return Ok(spent);
            }
            let started = Instant::now();
            hasher.update(&block[..len]);
            spent += started.elapsed();
        }
    }

    fn copy(&self) -> Result<Duration, Failure> {
        let target = self.folder.join("copy");
        let mut block = vec![0; BLOCK_LEN];
        let started = Instant::now();
        let (mut from, mut to) = (File::open(&self.source)?, File::create(&target)?);
        loop {
            let len = from.read(&mut block)?;
            if len == 0 {
                break;
            }
            to.write_all(&block[..len])?;
        }
        let spent = started.elapsed();
        std::fs::remove_file(target)?;
        Ok(spent)
    }

    /// From the start of `litz send` to its end.
    fn transfer(&self) -> Result<Duration, Failure> {
        let visit = self.folder.join("visit");
        let _left_over = std::fs::remove_dir_all(&visit);
        let (inbox, theirs, ours) = (visit.join("in"), visit.join("receiver"), visit.join("sender"));
        for folder in [&inbox, &theirs, &ours] {
            std::fs::create_dir_all(folder)?;
        }
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let listen = format!("{SERVER_ADDRESS}:0");
        let receive = ["recv", &path(&inbox), "--json", "--state-dir", &path(&theirs), "--listen", &listen];
        let mut receiver = Process::start(Some(SERVER), &self.command, &with_options(&receive), TRANSFER_LIMIT)?;
        let said: serde_json::Value = serde_json::from_str(&receiver.line()?)?;
        let ticket = said["ticket"].as_str().ok_or("the receiver printed no ticket")?;
        let send = ["send", &path(&self.source), ticket, "--json", "--state-dir", &path(&ours)];
        let started = Instant::now();
        let mut sender = Process::start(Some(CLIENT), &self.command, &with_options(&send), TRANSFER_LIMIT)?;
        sender.end()?;
        let spent = started.elapsed();
        receiver.end()?;
        let arrived = std::fs::metadata(inbox.join("source"))?.len();
        if arrived != self.len {
            return Err(format!("{arrived} of {} bytes arrived", self.len).into());
        }
        std::fs::remove_dir_all(&visit)?;
        Ok(spent)
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.folder);
    }
}

/// Datagrams that fill an MTU of 1500.
fn with_options<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &["--datagram-size", "1472"]].concat()
}

/// The rate of steps done one after the other, each at its own rate.
fn bound(rates: &[f64]) -> f64 {
    rates.iter().map(|rate| rate.recip()).sum::<f64>().recip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_successive_steps_add_up() {
        assert!((bound(&[2.0, 2.0]) - 1.0).abs() < 1e-12);
        assert!((bound(&[12.0, 6.0, 4.0]) - 2.0).abs() < 1e-12);
    }
}
