//! Random bytes that nobody can predict: seeds, tokens, connection identifiers, path challenges.
//!
//! Kept apart from [`units::Rng`], whose output is public: the two must never be mistaken for each other.

use std::io;

/// Fills `bytes` from the operating system's generator. Blocks until that is seeded, which matters only right after boot.
///
/// # Errors
/// What the operating system reports; then part of `bytes` may be filled, and none of it may be used.
pub fn os_random(bytes: &mut [u8]) -> io::Result<()> {
    fill(bytes)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn fill(bytes: &mut [u8]) -> io::Result<()> {
    use rustix::rand::{GetRandomFlags, getrandom};

    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            // Beyond 256 bytes a signal may cut the call short.
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn fill(bytes: &mut [u8]) -> io::Result<()> {
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_filled_and_no_two_draws_agree() {
        let mut first = vec![0_u8; 100_000];
        let mut second = first.clone();
        os_random(&mut first).unwrap();
        os_random(&mut second).unwrap();
        assert_ne!(first, second);
        // A run of 64 zeros in random bytes has a chance of 2^-495.
        assert!(first.chunks_exact(64).all(|chunk| chunk.iter().any(|&byte| byte != 0)));
        os_random(&mut []).unwrap();
    }
}
