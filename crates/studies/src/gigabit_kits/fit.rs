//! The one fitted cost: the processor time of a byte that reproduces the fastest printed row.

use super::exchange::{Assumed, Exchange, Rules};
use super::paper::{Action, Printed, Rate};

/// Search range of the cost, in picoseconds per byte. Below it, a host is so fast that it answers
/// each segment before the next one arrives, and so behaves differently.
const RANGE_PS: (u64, u64) = (8000, 40_000);

/// Returns the row used for the fit.
pub(super) fn row(printed: &Printed) -> Rate {
    let is_meant = |rate: &&Rate| rate.action == Action::Rw && !rate.is_slow();
    let fastest = printed.rate.iter().filter(is_meant).max_by(|a, b| a.rate_mbps.total_cmp(&b.rate_mbps));
    *fastest.expect("there are fast rows")
}

/// Returns the cost of a byte at a receiver, to a picosecond.
pub(super) fn byte_ps(printed: &Printed, assumed: Assumed) -> u64 {
    let row = row(printed);
    let (mut fast, mut slow) = RANGE_PS;
    while slow - fast > 1 {
        let byte_ps = fast.midpoint(slow);
        if exchange(&row, Rules::BOTH, assumed, byte_ps).rate_mbps() < row.rate_mbps {
            slow = byte_ps;
        } else {
            fast = byte_ps;
        }
    }
    slow
}

/// Returns the experiment of a printed row.
pub(super) const fn exchange(row: &Rate, rules: Rules, assumed: Assumed, byte_ps: u64) -> Exchange {
    Exchange {
        action: row.action,
        buffer_bytes: row.socket_buffer_bytes,
        packet_bytes: row.packet_bytes,
        rules,
        assumed,
        byte_ps,
    }
}
