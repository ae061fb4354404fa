//! The demo's files: creates them from random bytes and compares them.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use units::Rng;

/// Size of the blocks that are read and written.
const BLOCK_LEN: usize = 1 << 20;

/// The result of comparing two files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    /// BLAKE3 hash of the first file, in hexadecimal.
    pub(super) hash: String,
    /// Whether the second file has the same hash.
    pub(super) is_same: bool,
    /// Bytes of the first file that differ or are missing in the second.
    pub(super) bytes_lost: u64,
}

/// Creates a file of random bytes from a seed. They cannot be compressed or deduplicated.
pub(super) fn make(path: &Path, size_bytes: u64, seed: u64) -> io::Result<()> {
    let mut rng = Rng::from_seed(seed).split("file");
    let mut out = BufWriter::new(File::create(path)?);
    let mut block = vec![0; BLOCK_LEN];
    let mut left = size_bytes;
    while left > 0 {
        let len = left.min(block.len() as u64) as usize;
        rng.fill(&mut block[..len]);
        out.write_all(&block[..len])?;
        left -= len as u64;
    }
    // Flushed now, because writing to disk later would disturb the measurement.
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Compares the sent file with the received one.
///
/// # Errors
/// A message for the user if a file cannot be read.
pub(super) fn compare(sent: &Path, received: &Path) -> Result<Comparison, String> {
    let hash = |path: &Path| {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(open(path)?).map_err(|error| unreadable(path, &error))?;
        Ok::<_, String>(hasher.finalize())
    };
    let (sent_hash, received_hash) = (hash(sent)?, hash(received)?);
    let is_same = sent_hash == received_hash;
    let bytes_lost = if is_same { 0 } else { count_lost(sent, received)? };
    Ok(Comparison { hash: sent_hash.to_hex().to_string(), is_same, bytes_lost })
}

fn count_lost(sent: &Path, received: &Path) -> Result<u64, String> {
    let (mut left, mut right) = (open(sent)?, open(received)?);
    let (mut left_block, mut right_block) = (Vec::new(), Vec::new());
    let mut lost = 0;
    loop {
        fill(&mut left, &mut left_block).map_err(|error| unreadable(sent, &error))?;
        fill(&mut right, &mut right_block).map_err(|error| unreadable(received, &error))?;
        if left_block.is_empty() {
            return Ok(lost);
        }
        let same = left_block.iter().zip(&right_block).filter(|(left, right)| left == right).count();
        lost += (left_block.len() - same) as u64;
    }
}

/// Reads the next block; it is shorter only at the end of the file.
fn fill(file: &mut File, block: &mut Vec<u8>) -> io::Result<()> {
    block.clear();
    file.take(BLOCK_LEN as u64).read_to_end(block).map(|_| ())
}

fn open(path: &Path) -> Result<File, String> {
    File::open(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_and_missing_bytes_count_as_lost() {
        let folder = tempfile::tempdir().unwrap();
        let (sent, received) = (folder.path().join("sent"), folder.path().join("received"));
        let len = BLOCK_LEN as u64 + 1000;
        make(&sent, len, 1).unwrap();
        let mut bytes = std::fs::read(&sent).unwrap();
        std::fs::write(&received, &bytes).unwrap();
        let same = compare(&sent, &received).unwrap();
        assert_eq!((same.is_same, same.bytes_lost), (true, 0));
        assert_eq!(same.hash, blake3::hash(&bytes).to_hex().as_str());

        bytes.truncate(bytes.len() - 10);
        bytes[3] ^= 1;
        bytes[BLOCK_LEN] ^= 1;
        std::fs::write(&received, &bytes).unwrap();
        let other = compare(&sent, &received).unwrap();
        assert_eq!((other.is_same, other.bytes_lost, other.hash), (false, 12, same.hash));
    }

    #[test]
    fn the_seed_determines_the_contents() {
        let folder = tempfile::tempdir().unwrap();
        let made = |name: &str, seed| {
            make(&folder.path().join(name), 5000, seed).unwrap();
            std::fs::read(folder.path().join(name)).unwrap()
        };
        assert_eq!(made("a", 1), made("b", 1));
        assert_ne!(made("a", 1), made("c", 2));
        assert_eq!(made("a", 1).len(), 5000);
    }
}
