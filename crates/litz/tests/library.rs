//! The library as its users see it: every scenario over both wires and under both placements.

#![expect(clippy::disallowed_methods, reason = "these are tests of real threads")]

#[path = "library/world.rs"]
mod world;

#[path = "library/bytes.rs"]
mod bytes_scenarios;

use litz::Placement;
use world::{Arm, Wire};

/// One test of each scenario in each arm.
macro_rules! scenarios {
    ($($module:ident::$name:ident),* $(,)?) => {
        scenarios!(@arm udp_thread, Wire::Udp, Placement::Thread, $($module::$name),*);
        scenarios!(@arm udp_inline, Wire::Udp, Placement::Inline, $($module::$name),*);
        scenarios!(@arm memory_thread, Wire::Memory, Placement::Thread, $($module::$name),*);
        scenarios!(@arm memory_inline, Wire::Memory, Placement::Inline, $($module::$name),*);
    };
    (@arm $arm:ident, $wire:expr, $placement:expr, $($module:ident::$name:ident),*) => {
        mod $arm {
            use super::*;
            $(#[test] fn $name() { $module::$name(Arm { wire: $wire, placement: $placement }); })*
        }
    };
}

scenarios! {
    bytes_scenarios::an_echo_comes_back,
    bytes_scenarios::sixty_four_megabytes_arrive_as_they_left,
    bytes_scenarios::two_hundred_streams_at_once_all_arrive,
}
