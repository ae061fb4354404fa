//! The cliff comes from the stack, and either rule alone has none.

use super::exchange::{Assumed, Exchange, Rules};
use super::fit;
use super::paper::{Action, Printed, SLOW_MBPS};

/// A byte's processor time close to the fitted one.
const BYTE_PS: u64 = 20_000;

fn rate(buffer_bytes: usize, packet_bytes: usize, rules: Rules) -> f64 {
    let assumed = Assumed::default();
    Exchange { action: Action::Rw, buffer_bytes, packet_bytes, rules, assumed, byte_ps: BYTE_PS }.rate_mbps()
}

#[test]
fn a_packet_of_two_segments_waits_for_the_timer_only_with_both_rules() {
    // Each direction waits once: 9128 bytes leave, 7256 do not, and nothing acknowledges the first.
    let ms = 16_384.0 * 8.0 / 1e3 / rate(65_535, 16_384, Rules::BOTH);
    assert!((195.0..205.0).contains(&ms), "{ms}");
    for rules in [Rules { nagle: false, ..Rules::BOTH }, Rules { delayed: false, ..Rules::BOTH }] {
        let rate = rate(65_535, 16_384, rules);
        assert!(rate > 100.0, "{rules:?}: {rate}");
    }
}

#[test]
fn every_printed_row_is_on_its_side_also_with_other_costs() {
    let printed = Printed::load();
    assert_eq!(printed.measured().count(), 24);
    for byte_ps in [BYTE_PS, BYTE_PS * 5 / 4] {
        for row in printed.measured() {
            let ours = fit::exchange(row, Rules::BOTH, Assumed::default(), byte_ps).rate_mbps();
            assert_eq!(ours < SLOW_MBPS, row.is_slow(), "{}: {ours} Mb/s with {byte_ps} ps", row.label());
        }
    }
}

#[test]
fn the_fitted_row_comes_out() {
    let printed = Printed::load();
    let byte_ps = fit::byte_ps(&printed, Assumed::default());
    let row = fit::row(&printed);
    assert_eq!((row.socket_buffer_bytes, row.packet_bytes), (65_535, 65_535));
    let ours = fit::exchange(&row, Rules::BOTH, Assumed::default(), byte_ps).rate_mbps();
    assert!((ours / row.rate_mbps - 1.0).abs() < 1e-3, "{ours} with {byte_ps} ps");
}
