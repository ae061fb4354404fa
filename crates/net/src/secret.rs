//! Unpredictable random bytes for seeds, tokens, connection IDs and path challenges.
//!
//! This module is separate from [`units::Rng`], whose output is predictable: the two must not be
//! confused.

use std::io;

/// Fills `bytes` from the operating system's generator. Blocks until the generator is seeded, which
/// matters only right after boot.
///
/// # Errors
/// The system's error. A part of `bytes` may then be filled, but must not be used.
pub fn os_random(bytes: &mut [u8]) -> io::Result<()> {
    fill(bytes)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn fill(bytes: &mut [u8]) -> io::Result<()> {
    use rustix::rand::{GetRandomFlags, getrandom};

    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            // Beyond 256 bytes a signal may interrupt the call.
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
    fn every_byte_is_filled_and_draws_differ() {
        let mut first = vec![0_u8; 100_000];
        let mut second = first.clone();
        os_random(&mut first).unwrap();
        os_random(&mut second).unwrap();
        assert_ne!(first, second);
        // The probability of 64 zero bytes in random data is 2^-495.
        assert!(first.chunks_exact(64).all(|chunk| chunk.iter().any(|&byte| byte != 0)));
        os_random(&mut []).unwrap();
    }
}
