use netem::LineState;
use units::{Instant, Rate};

use super::*;
use crate::testing::{parsed, scenario, with_head};

const LINK: &str = "[[link]]\nname = 'a'\nrate = '100Mb/s'\ndelay = '10ms'\n";

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn with(faults: &str) -> Scenario {
    scenario(&format!("{LINK}{faults}"))
}

/// Returns the settings in force at a moment.
fn at(scenario: &Scenario, direction: usize, millis: u64) -> LinkConfig {
    scheduled(scenario, 0, direction).effective_at(Instant::ZERO + ms(millis))
}

#[test]
fn an_end_restores_the_previous_settings() {
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
fn faults_may_follow_each_other_but_not_overlap() {
    let steps = |second_at: &str| {
        format!(
            "{LINK}[[fault]]\nlink = 'a'\nat = '1s'\nuntil = '2s'\nloss = '1%'\n\
             [[fault]]\nlink = 'a'\nat = '{second_at}'\nuntil = '3s'\nloss = '2%'\n"
        )
    };
    let fine = scenario(&steps("2s"));
    assert_eq!(at(&fine, 0, 2500).loss, units::Ratio::from_millionths(20_000));
    assert_eq!(at(&fine, 0, 3500).loss, units::Ratio::ZERO);
    let error = parsed(&with_head(&steps("1.5s"))).unwrap_err().to_string();
    assert_eq!(
        error,
        "test.toml:15: fault.at: overlaps the fault in line 10, which changes the same setting and has not ended"
    );
}

#[test]
fn invalid_link_settings_are_reported_at_the_fault() {
    let text = "[[link]]\nname = 'a'\ntrace = 'one-a-millisecond'\n[[fault]]\nlink = 'a'\nat = '1s'\nrate = '1Mb/s'\n";
    let error = parsed(&with_head(text)).unwrap_err().to_string();
    assert!(error.starts_with("test.toml:9: fault.rate: link \"a\" would be invalid: a link has a rate"), "{error}");
}

/// Returns a scenario of `links` links and `faults` faults, distributed round robin. Each fault
/// changes nine settings about ten thousand times.
fn crowded(links: usize, faults: usize) -> String {
    let mut body: String = (0..links).map(|link| format!("[[link]]\nname = 'l{link}'\n")).collect();
    for fault in 0..faults {
        let (link, at) = (fault % links, fault / links);
        body += &format!(
            "[[fault]]\nlink = 'l{link}'\nat = '{at}us'\nuntil = '{at}.1us'\nevery = '1001us'\nstate = 'silent'\n\
             delay = '1ms'\nloss = '1%'\nduplicate = '1%'\ncorrupt = '1%'\njitter = {{ distribution = 'none' }}\n\
             bursts = {{ enter = '0' }}\nreorder = {{ share = '0' }}\nrate = '1Mb/s'\n"
        );
    }
    body
}

#[test]
fn changes_are_counted_before_they_are_allocated() {
    // In total 46 million changes in each direction, which would take gigabytes.
    let refused = |links, faults| {
        let text = with_head(&crowded(links, faults));
        parsed(&text)
            .unwrap_err()
            .problems
            .into_iter()
            .map(|problem| (problem.key, problem.message))
            .collect::<Vec<_>>()
    };
    let one = refused(1, 256);
    assert_eq!((one.len(), one[0].0.as_str()), (1, "fault.every"), "{one:?}");
    assert!(one[0].1.contains("link \"l0\" changes more than 65536 times"), "{one:?}");
    let all = refused(2, 2);
    assert!(all.len() == 1 && all[0].1.contains("changes more than 65536"), "{all:?}");
}

#[test]
fn the_total_number_of_changes_is_bounded() {
    // Three settings, both directions, both edges: 12 changes per occurrence. 5000 occurrences on
    // five links are too many, on four links not.
    let text = |links: usize| {
        let link = |link| {
            format!(
                "[[link]]\nname = 'l{link}'\n[[fault]]\nlink = 'l{link}'\nat = '0'\nuntil = '1us'\nevery = '2ms'\n\
                 state = 'silent'\ndelay = '1ms'\nloss = '1%'\n"
            )
        };
        (0..links).map(link).collect::<String>()
    };
    let fine = scenario(&text(4));
    assert_eq!(occurrences(&fine).len(), 4 * 5000);
    let error = parsed(&with_head(&text(5))).unwrap_err();
    assert_eq!((error.problems.len(), error.problems[0].key.as_str()), (1, "fault.every"), "{error}");
    assert!(error.problems[0].message.contains("more than 262144 times together"), "{error}");
}

#[test]
fn counts_match_the_listed_occurrences() {
    let end = ms(10_000);
    for (at, every) in [("0", "2ms"), ("1s", "3s"), ("1s", "4.5s"), ("9999999us", "2ms"), ("3ms", "1.5ms")] {
        let fault = with(&format!(
            "[[fault]]\nlink = 'a'\nat = '{at}'\nuntil = '{}ns'\nevery = '{every}'\nstate = 'held'\n",
            at.parse::<Duration>().unwrap().as_nanos() + 1
        ));
        assert_eq!(count(&fault.faults[0], end), times(&fault.faults[0], end).count() as u64, "{at} {every}");
    }
}

#[test]
fn faults_that_occur_never_or_too_often_are_refused() {
    for (fault, message) in [
        ("at = '10s'\nstate = 'held'", "test.toml:10: fault.at: must be before the end"),
        ("at = '0'\nuntil = '1us'\nevery = '2us'\nstate = 'held'", "test.toml:10: fault.every: would happen more than"),
    ] {
        let text = format!("{LINK}[[fault]]\nlink = 'a'\n{fault}\n");
        let error = parsed(&with_head(&text)).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}
