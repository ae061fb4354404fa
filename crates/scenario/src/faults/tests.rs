use netem::LineState;
use units::{Instant, Rate};

use super::*;
use crate::testing::{parsed, scenario, whole};

const LINK: &str = "[[link]]\nname = 'a'\nrate = '100Mb/s'\ndelay = '10ms'\n";

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn with(faults: &str) -> Scenario {
    scenario(&format!("{LINK}{faults}"))
}

/// The settings in force at a moment.
fn at(scenario: &Scenario, direction: usize, millis: u64) -> LinkConfig {
    scheduled(scenario, 0, direction).in_force_at(Instant::ZERO + ms(millis))
}

#[test]
fn an_end_puts_back_what_was_before() {
    let scenario = with(
        "
        [[fault]]
        link = 'a'
        at = '1s'
        rate = '50Mb/s'
        [[fault]]
        link = 'a'
        at = '2s'
        until = '3s'
        rate = '10Mb/s'
        delay = '80ms'
        direction = 'forward'
    ",
    );
    let rates = [500, 1500, 2500, 3500].map(|millis| at(&scenario, 0, millis).rate.unwrap());
    assert_eq!(rates, [100, 50, 10, 50].map(Rate::from_mbps));
    assert_eq!([1500, 2500, 3500].map(|millis| at(&scenario, 0, millis).delay), [10, 80, 10].map(ms));
    assert_eq!(at(&scenario, 1, 2500).rate, Some(Rate::from_mbps(50)));
    let happened = occurrences(&scenario);
    assert_eq!((happened[0].from, happened[0].to), (ms(1000), ms(2000)));
    assert_eq!((happened[1].from, happened[1].to), (ms(2000), ms(3000)));
}

#[test]
fn a_fault_repeats_until_the_run_ends() {
    let scenario = with(
        "
        [[fault]]
        link = 'a'
        at = '1s'
        until = '1.5s'
        every = '2s'
        state = 'silent'
    ",
    );
    let states: Vec<_> = (0..10).map(|second| at(&scenario, 0, second * 1000 + 250).state).collect();
    for (second, state) in states.iter().enumerate() {
        assert_eq!(*state == LineState::Silent, second % 2 == 1, "second {second}");
    }
    let happened = occurrences(&scenario);
    assert_eq!(happened.len(), 5);
    assert_eq!((happened[4].from, happened[4].to), (ms(9000), ms(9500)));
}

#[test]
fn faults_may_follow_each_other_and_not_overlap() {
    let steps = |second_at: &str| {
        format!(
            "{LINK}[[fault]]\nlink = 'a'\nat = '1s'\nuntil = '2s'\nloss = '1%'\n\
             [[fault]]\nlink = 'a'\nat = '{second_at}'\nuntil = '3s'\nloss = '2%'\n"
        )
    };
    let fine = scenario(&steps("2s"));
    assert_eq!(at(&fine, 0, 2500).loss, units::Ratio::from_millionths(20_000));
    assert_eq!(at(&fine, 0, 3500).loss, units::Ratio::ZERO);
    let error = parsed(&whole(&steps("1.5s"))).unwrap_err().to_string();
    assert_eq!(
        error,
        "test.toml:15: fault.at: overlaps with the fault in line 10, which sets the same and has not ended"
    );
}

#[test]
fn what_no_link_can_be_is_told_with_the_fault() {
    let text = "[[link]]\nname = 'a'\ntrace = 'one-a-millisecond'\n[[fault]]\nlink = 'a'\nat = '1s'\nrate = '1Mb/s'\n";
    let error = parsed(&whole(text)).unwrap_err().to_string();
    assert!(error.starts_with("test.toml:9: fault.rate: link \"a\" cannot be so: a link has a rate"), "{error}");
}

#[test]
fn what_never_happens_or_too_often_is_refused() {
    for (fault, words) in [
        ("at = '10s'\nstate = 'held'", "test.toml:10: fault.at: comes after the end"),
        ("at = '0'\nuntil = '1us'\nevery = '2us'\nstate = 'held'", "test.toml:10: fault.every: would happen more than"),
    ] {
        let text = format!("{LINK}[[fault]]\nlink = 'a'\n{fault}\n");
        let error = parsed(&whole(&text)).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
}
