//! The costs of the stages of each stack, fitted to its printed rate on one processor.

use layers::Stack as Layers;
use tcp_hosts::{Costs, SegmentCost};
use units::Duration;

use super::super::paper::{Stack, Throughput};
use super::transfer::{Side, Transfer};
use crate::study::Effort;

/// Number of packets that a fit measures.
const FIT_PACKETS: usize = 100;

/// Parameters that the paper does not give.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Assumed {
    /// Part of the stack without security that is the serial step of the connection, or the
    /// interface. The rest is work on the bytes of a packet, which needs no connection.
    pub(super) serial_share: f64,
    /// Serial step of a segment without data, as a share of that of a full one.
    pub(super) empty_share: f64,
    /// Variation of connection-independent work.
    pub(super) spread_percent: u8,
    /// Size of the send buffer and of the receive buffer in packets.
    pub(super) window: usize,
}

impl Default for Assumed {
    fn default() -> Self {
        Self { serial_share: 1.0, empty_share: 0.25, spread_percent: 10, window: 64 }
    }
}

/// Processor time of a full packet in each part of a stack, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Parts {
    /// The stack without security.
    pub(super) bare_us: f64,
    pub(super) digest_us: f64,
    pub(super) cipher_us: f64,
}

/// Returns the security layers of a stack of the paper.
pub(super) fn layers(stack: &Stack) -> Layers {
    stack.layers().parse().expect("we have the layers of the paper")
}

impl Parts {
    /// Returns the parts as costs of a host.
    pub(super) fn costs(&self, paper: &Throughput, assumed: &Assumed) -> Costs {
        let byte_ps = |us: f64| (us * 1e6 / paper.packet_bytes as f64).round() as u64;
        let serial_us = self.bare_us * assumed.serial_share;
        let serial = SegmentCost {
            segment: Duration::from_nanos((serial_us * assumed.empty_share * 1e3).round() as u64),
            byte_ps: byte_ps(serial_us * (1.0 - assumed.empty_share)),
        };
        let stage_us = self.bare_us - serial_us + self.digest_us;
        Costs {
            sent: serial,
            received: serial,
            stage: SegmentCost { segment: Duration::ZERO, byte_ps: byte_ps(stage_us) },
            record_byte_ps: byte_ps(self.cipher_us),
            spread_percent: assumed.spread_percent,
            ..Costs::default()
        }
    }

    /// Fits the parts with which our stack has the printed rates on one processor when it sends,
    /// for these stacks of the paper. Parts that two stacks have in common are fitted once: the
    /// stack without security, then the digest, then each cipher.
    pub(super) fn fit<'a>(
        paper: &Throughput,
        stacks: impl IntoIterator<Item = &'a Stack>,
        assumed: &Assumed,
    ) -> Vec<Self> {
        let mut bare = Self::default();
        bare.fit_part(paper, paper.bare(), assumed, |parts| &mut parts.bare_us);
        let mut with_digest = None;
        let fit = |stack: &Stack| {
            if !stack.below_tcp {
                return bare;
            }
            let mut parts = *with_digest.get_or_insert_with(|| {
                let mut parts = bare;
                parts.fit_part(paper, paper.digest(), assumed, |parts| &mut parts.digest_us);
                parts
            });
            if stack.above_tcp {
                parts.fit_part(paper, stack, assumed, |parts| &mut parts.cipher_us);
            }
            parts
        };
        stacks.into_iter().map(fit).collect()
    }

    /// Fits one part so that `stack` has its rate.
    fn fit_part(&mut self, paper: &Throughput, stack: &Stack, assumed: &Assumed, part: impl Fn(&mut Self) -> &mut f64) {
        let so_far_us = self.bare_us + self.digest_us + self.cipher_us;
        let printed_us = paper.packet_us(stack);
        // The time of a packet is linear in its costs, so two runs determine the line. Without
        // variation, few packets suffice.
        let mut missing_us = |part_us: f64| {
            *part(self) = part_us;
            let costs = Costs { spread_percent: 0, ..self.costs(paper, assumed) };
            let transfer = transfer(paper, stack, Side::Sends, 1, costs, assumed, Effort::Quick);
            let mbps = Transfer { measured: FIT_PACKETS, ..transfer }.run(0, 0).mbps;
            printed_us - paper.packet_bytes as f64 * 8.0 / mbps
        };
        let first_us = printed_us - so_far_us;
        let first = missing_us(first_us);
        let second_us = first_us + first;
        let second = missing_us(second_us);
        let is_met = (first - second).abs() < f64::EPSILON;
        *part(self) = if is_met { second_us } else { second_us + second * first / (first - second) };
    }
}

/// Returns a transfer with these costs.
pub(super) fn transfer(
    paper: &Throughput,
    stack: &Stack,
    side: Side,
    processors: usize,
    costs: Costs,
    assumed: &Assumed,
    effort: Effort,
) -> Transfer {
    // The results of many processors leave in groups, because they leave in order: with few packets
    // the rate would differ in each run.
    let (windows, measured) = match effort {
        Effort::Quick => (2, 200),
        Effort::Full => (3, 600),
    };
    Transfer {
        stack: layers(stack),
        side,
        processors,
        costs,
        packet_bytes: paper.packet_bytes as usize,
        window: assumed.window,
        // The buffers of both sides are in steady state after this.
        warm_up: windows * assumed.window,
        measured,
    }
}
