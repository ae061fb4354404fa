//! The one fitted cost: the processor time of a byte, so that the fastest printed row comes out.

use super::exchange::{Assumed, Exchange, Rules};
use super::paper::{Action, Printed, Rate};

/// Where the cost is looked for, in picoseconds a byte. Below, a host is so fast that it answers each
/// segment before the next one arrives, and is another system.
const RANGE_PS: (u64, u64) = (8000, 40_000);

/// The row that it is fitted to.
pub(super) fn row(printed: &Printed) -> Rate {
    let is_meant = |rate: &&Rate| rate.action == Action::Rw && !rate.is_slow();
    let fastest = printed.rate.iter().filter(is_meant).max_by(|a, b| a.rate_mbps.total_cmp(&b.rate_mbps));
    *fastest.expect("there are fast rows")
}

/// The cost of a byte at a receiver, to a picosecond.
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

/// The experiment of a printed row.
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
