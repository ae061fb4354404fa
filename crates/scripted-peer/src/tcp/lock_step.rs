//! The stream that a placement sends when its processors take turns: the same for every placement.

use std::task::{Poll, Waker};

use bytes::Bytes;
use engine::{Drivers, ManualClock};
use units::{Duration, Rng};

use super::check::StreamCheck;
use super::device::ScriptDevice;
use super::end::{ScriptRuntime, TcpSetup};
use super::script::TcpScript;
use crate::pattern::Pattern;

/// Time between two rounds of turns.
const STEP: Duration = Duration::from_micros(10);

/// Number of rounds without progress after which the run counts as stalled.
const IDLE_MAX: u32 = 100_000;

/// Sends `len` bytes of the [pattern](Pattern) in lock-step, with the processors in an order that
/// `seed` determines. Every digest is verified and every record opened. Returns the [digest of the
/// stream](StreamCheck::wire_digest).
///
/// # Errors
/// Returns a message for the user if any byte differs from the data written.
pub fn wire_digest(setup: &TcpSetup, len: usize, seed: u64) -> Result<String, String> {
    let clock = ManualClock::new();
    let device = ScriptDevice::new(TcpScript::new(setup.layers(), Some(StreamCheck::new(setup.layers()))));
    let make = |count, _| Ok((0..count).map(|_| setup.protocol()).collect());
    let started =
        Drivers::start_stepped(setup.settings(), TcpSetup::limits(), vec![device.clone()], clock.clone(), make);
    let (drivers, mut stepped) = started.map_err(|error| error.to_string())?;
    let stream = ScriptRuntime(drivers).connect().map_err(|error| error.to_string())?;
    // All at once: the ends of records depend on the data available when they are made.
    let mut bytes: Bytes = Pattern::new().bytes().iter().copied().cycle().take(len).collect();
    if let Poll::Ready(Err(error)) = stream.poll_write(&mut bytes, Waker::noop()) {
        return Err(error.to_string());
    }
    if !bytes.is_empty() {
        return Err(format!("{len} bytes do not fit between the application and the connection"));
    }
    let (mut rng, mut idle) = (Rng::from_seed(seed), 0);
    loop {
        let processors = stepped.processor_count();
        let first = rng.next_u64() as usize % processors;
        let mut has_turned = false;
        for index in 0..processors {
            let processor = (first + index) % processors;
            if stepped.due_at_of(processor).is_some_and(|due| due <= clock.now()) {
                stepped.turn_of(processor);
                has_turned = true;
            }
        }
        let (arrived, failure) = device
            .with_script(|script| (script.check().map_or(0, StreamCheck::bytes), script.failure().map(str::to_owned)));
        if let Some(failure) = failure {
            return Err(failure);
        }
        if arrived == len as u64 {
            return Ok(device.with_script(|script| script.check().map(StreamCheck::wire_digest)).unwrap_or_default());
        }
        idle = if has_turned { 0 } else { idle + 1 };
        if idle > IDLE_MAX {
            return Err(format!("nothing happens after {arrived} of {len} bytes"));
        }
        if !has_turned {
            clock.set(stepped.due_at().unwrap_or(clock.now()).max(clock.now() + STEP));
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::Placement;
    use layers::{CipherLayer, DigestLayer, Stack};

    use super::*;

    fn digest(stack: Stack, placement: Placement, len: usize, seed: u64) -> String {
        let setup = TcpSetup { stack, payload: 4096, placement, cores: Vec::new(), metered: false };
        wire_digest(&setup, len, seed).unwrap_or_else(|error| panic!("{stack} {placement} seed {seed}: {error}"))
    }

    #[test]
    fn the_stream_of_every_stack_is_the_same_under_every_placement() {
        let placements =
            [Placement::Thread, Placement::Pipeline, Placement::Packet(1), Placement::Packet(2), Placement::Packet(4)];
        for cipher in CipherLayer::ALL.into_iter().map(Some).chain([None]) {
            for below in DigestLayer::ALL.into_iter().map(Some).chain([None]) {
                let stack = Stack { cipher, digest: below };
                let inline = digest(stack, Placement::Inline, 700_000, 0);
                for (seed, placement) in (1..).zip(placements) {
                    assert_eq!(digest(stack, placement, 700_000, seed), inline, "{stack} {placement} seed {seed}");
                }
            }
        }
    }

    #[test]
    fn the_digest_tells_streams_apart() {
        let of = |stack: &str, len| digest(stack.parse().expect("a stack"), Placement::Inline, len, 0);
        let digests =
            [of("tcp/ip", 90_000), of("tcp/ip", 90_001), of("des/tcp/ip", 90_000), of("aes128/tcp/ip", 90_000)];
        for (at, one) in digests.iter().enumerate() {
            assert!(!digests[at + 1..].contains(one), "{digests:?}");
        }
        // Layers below TCP are not part of the stream.
        assert_eq!(of("tcp/md5/ip", 90_000), of("tcp/blake3/ip", 90_000));
    }
}
