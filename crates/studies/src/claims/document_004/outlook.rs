//! Prices, displays, misprints.

use crate::claims::{Context, Decider, Decision, exact};

pub(super) const DECIDERS: [(&str, Decider); 2] = [("004-34", it_is_cheap), ("004-35", a_display_needs_472)];

fn it_is_cheap(_: &Context) -> Decision {
    Decision::not_decidable("prices of its time: no model has them")
}

fn a_display_needs_472(_: &Context) -> Decision {
    const PRINTED_MBPS: f64 = 472.0;
    let (width, height, bits, frames) = (1280.0, 1024.0, 24.0, 15.0);
    let mbps = width * height * bits * frames * 1e-6;
    Decision::of(
        (mbps - PRINTED_MBPS).abs() < 0.5,
        "the product is what is printed, rounded",
        "the product is not what is printed",
    )
    .with("pixels by bits by frames", "Mb/s", PRINTED_MBPS, exact(mbps))
}
