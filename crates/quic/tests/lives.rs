//! Lives by seed and by random scripts; `support/lives` describes them.
//!
//! `LITZ_LIVES=100000 cargo test --release -p litz-quic --test all lives` runs that many;
//! `LITZ_SEED_FROM` sets the first. A failure prints the seed and its whole configuration: add the
//! seed to [`REGRESSIONS`], or the script to [`SCRIPTS`].

use units::Rng;

use crate::support::lives::{Happened, live, live_by_script};
use crate::support::seeds::{FailureContext, number_from};

/// Lives that `make test` runs, in two halves.
const LIVES: u64 = 600;

/// Lives by random scripts.
const SCRIPTED: u64 = 60;

/// The length of a random script in bytes: 30 operations.
const SCRIPT_LEN: usize = 94;

/// Seeds that once failed.
const REGRESSIONS: [u64; 0] = [];

/// Scripts that once failed.
const SCRIPTS: [&[u8]; 2] = [
    &[
        60, 184, 121, 57, 223, 205, 174, 30, 201, 180, 67, 207, 64, 209, 166, 76, 120, 50, 26, 56, 65, 52, 85, 234, 58,
        9, 149, 83, 87, 81, 52, 8, 176, 160, 232, 171, 128, 227, 13, 140, 243, 53, 98, 83, 156, 127, 37, 188, 75, 96,
        26, 218, 74, 1, 192, 114, 43, 209, 183, 173, 104, 11, 90, 32, 92, 188, 88, 23, 53, 25, 149, 62, 126, 104, 107,
        120, 125, 63, 199, 9, 72, 72, 90, 253, 166, 246, 144, 142, 242, 129, 17, 9, 8, 106, 140, 227, 201, 229, 67,
        154, 205, 195, 105, 98, 24, 200, 124, 178, 176, 60, 214, 193, 136, 104, 11, 159, 32, 115, 115, 115, 115, 115,
        92, 188, 88, 23, 98, 222, 205, 120, 165, 2, 189, 160, 108, 136, 211, 203, 201, 86, 2, 69, 203, 240, 86, 153,
    ],
    &[
        47, 101, 167, 18, 80, 135, 244, 176, 243, 10, 215, 133, 53, 187, 198, 241, 43, 131, 52, 86, 1, 54, 122, 160,
        133, 99, 181, 32, 117, 101, 204, 228, 245, 3, 233, 223, 230, 76, 227, 47, 255, 255, 255, 255, 255, 255, 255,
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 27, 27, 27, 27, 27, 27, 27, 27,
        27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27,
        27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27,
        27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27,
        27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 138, 137, 73, 195, 187, 179, 16, 184, 98, 198, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 46, 204, 18, 21, 2, 236, 18, 145, 233, 15, 66, 74, 113, 57,
        166, 93, 160, 1, 183, 203, 46, 42, 39, 206, 92, 23, 235, 214, 62, 1, 0, 0, 0, 0, 0, 0, 0, 19, 157, 24, 187,
        206, 232, 115, 108, 151, 159, 110, 117, 4, 91, 37, 100, 216, 168, 177, 234, 61, 98, 105, 111, 111, 111, 111,
        111, 111, 111, 111, 111, 111, 111, 111, 111, 111, 161, 223, 0, 67, 226, 31, 30, 200, 62, 70, 67, 160, 33, 185,
        231, 137, 86, 13, 143, 232, 118, 126, 117, 153, 54, 18, 112, 120, 106, 194, 2, 226, 131, 250, 7, 230, 200, 203,
        96, 172, 119, 62,
    ],
];

/// Runs a part of the lives, so that the parts run in parallel.
#[expect(clippy::print_stdout, reason = "run on request")]
fn run_part(part: u64, parts: u64) {
    let from = number_from("LITZ_SEED_FROM", 0);
    let lives = number_from("LITZ_LIVES", LIVES);
    let mut sums = Happened::default();
    for seed in (from..from + lives).filter(|seed| seed % parts == part) {
        let mut happened = live(seed);
        sums.fields().into_iter().zip(happened.fields()).for_each(|(sum, more)| *sum += *more);
    }
    if lives >= LIVES {
        let rare = sums.fields().into_iter().any(|sum| *sum < lives / parts / 20);
        assert!(!rare, "some condition was too rare in {lives} lives: {sums:?}");
    }
    if std::env::var_os("LITZ_LIVES").is_some() {
        println!("{sums:?}");
    }
}

#[test]
fn lives_that_once_failed_pass() {
    for seed in REGRESSIONS {
        live(seed);
    }
    for script in SCRIPTS {
        live_by_script(script);
    }
}

#[test]
fn lives_end_well_first_half() {
    run_part(0, 2);
}

#[test]
fn lives_end_well_second_half() {
    run_part(1, 2);
}

#[test]
fn lives_by_random_scripts_end_well() {
    for seed in 0..SCRIPTED {
        let mut script = [0; SCRIPT_LEN];
        Rng::from_seed(seed).split("script").fill(&mut script);
        let _context = FailureContext(format!("script {seed}: {script:02x?}"));
        live_by_script(&script);
    }
}
