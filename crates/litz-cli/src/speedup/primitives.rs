//! The throughput of each layer alone, on one processor, and what the paper prints.

use bytes::Bytes;
use litz::tcp::{CipherLayer, DigestLayer, SharedSecret, Stack};
use net::MonotonicClock;
use serde::Serialize;
use units::Duration;

use super::bound::median;

/// The time of one sample, and their number. The median ignores interruptions.
const SAMPLE: Duration = Duration::from_millis(20);
const SAMPLES: usize = 7;

/// Bytes of the Authentication Header and of the headers around it.
const IP_LEN: usize = 20;

/// One layer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Primitive {
    /// Its name in a stack.
    pub(crate) layer: &'static str,
    /// Throughput when it seals packets one after the other, in bits of the application per second.
    pub(crate) throughput_bps: f64,
    /// The throughput of the paper's whole stack with this layer as its last addition, on one processor:
    /// the layer and all below it.
    pub(crate) paper_stack_bps: Option<f64>,
}

/// What the paper prints of a stack.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Paper {
    /// On one processor.
    pub(crate) throughput_bps: f64,
    /// With the number of processors of its machine, if it is printed, or as the words are read.
    pub(crate) speedup: Option<[f64; 2]>,
    pub(crate) processors: usize,
}

impl Paper {
    /// Nothing for stacks that the paper does not have.
    pub(super) fn of(stack: Stack) -> Option<Self> {
        let printed = studies::printed_stack(&stack.to_string())?;
        Some(Self {
            throughput_bps: printed.throughput_mbps * 1e6,
            speedup: printed.speedup,
            processors: printed.processors,
        })
    }
}

/// The layers of a stack, from above.
pub(super) fn measure(stack: Stack, payload: usize) -> Vec<Primitive> {
    let cipher = stack.cipher.map(|layer| Primitive {
        layer: layer.id(),
        throughput_bps: cipher_bps(layer, payload),
        paper_stack_bps: Paper::of(stack).map(|paper| paper.throughput_bps),
    });
    let digest = stack.digest.map(|layer| Primitive {
        layer: layer.id(),
        throughput_bps: digest_bps(layer, payload),
        paper_stack_bps: Paper::of(Stack { cipher: None, ..stack }).map(|paper| paper.throughput_bps),
    });
    cipher.into_iter().chain(digest).collect()
}

fn cipher_bps(layer: CipherLayer, payload: usize) -> f64 {
    let direction = layers::secret::Direction { salt: [1; 32], sender_initial: 2, receiver_initial: 3 };
    let key = SharedSecret::new([5; 32]).record_key(layer, &direction);
    let (content, mut out, mut number) = (Bytes::from(vec![7; payload]), Vec::new(), 0);
    throughput_bps(payload, || {
        out.clear();
        key.seal(number, layers::RecordKind::Data, [&content[..]].into_iter(), &mut out);
        number += 1;
    })
}

fn digest_bps(layer: DigestLayer, payload: usize) -> f64 {
    let key = SharedSecret::new([5; 32]).digest_key(layer);
    let mut packet = vec![7; IP_LEN + layers::digest::HEADER_LEN + payload];
    throughput_bps(payload, || key.fill(&mut packet, IP_LEN))
}

/// Calls `work` on `len` bytes again and again.
fn throughput_bps(len: usize, mut work: impl FnMut()) -> f64 {
    let clock = MonotonicClock::start();
    let mut sample = || {
        let (begin, mut count) = (clock.now(), 0_u64);
        loop {
            work();
            count += 1;
            let spent = clock.now().saturating_since(begin);
            if spent >= SAMPLE {
                return (count * len as u64 * 8) as f64 / spent.as_secs_f64();
            }
        }
    };
    median((0..SAMPLES).map(|_| sample()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_of_a_stack_are_measured_from_above_beside_the_paper() {
        let [des, md5] = &measure("des/tcp/md5/ip".parse().unwrap(), 4096)[..] else { panic!("two layers") };
        assert_eq!((des.layer, md5.layer), ("des", "md5"));
        assert!(des.throughput_bps > 1e6 && md5.throughput_bps > des.throughput_bps, "{des:?} {md5:?}");
        assert_eq!((des.paper_stack_bps, md5.paper_stack_bps), (Some(4.6e6), Some(18e6)));
        assert!(measure(Stack::PLAIN, 4096).is_empty());
        let [aes, blake3] = &measure(Stack::TODAY[1], 4096)[..] else { panic!("two layers") };
        assert_eq!((aes.paper_stack_bps, blake3.paper_stack_bps), (None, None));
    }
}
