use units::Duration;

use super::*;
use crate::check::verdicts;
use crate::model::Work;
use crate::testing::scenario;

fn outcome(body: &str, paths: &[usize], seed: u64) -> Outcome {
    let scenario = scenario(body);
    let plan = RunPlan { paths: paths.to_vec(), seed };
    Memory.run(&scenario, &plan, &mut |_| true).expect("the run completes")
}

const TWO: &str = "
    [[link]]
    name = 'a'
    rate = '50Mb/s'
    delay = '10ms'
    queue = '50ms'
    [[link]]
    name = 'b'
    rate = '50Mb/s'
    delay = '10ms'
    queue = '50ms'
";

#[test]
fn a_file_arrives_completely_at_the_rate_of_its_link() {
    let outcome = outcome(&format!("{TWO}[[workload]]\nkind = 'file'\nsize = '10MB'\n"), &[0], 1);
    assert!(outcome.is_complete(), "{outcome:?}");
    let part = &outcome.parts[0];
    assert_eq!((part.delivered.timeline.bytes, part.missing_bytes(), part.items_delivered), (10_000_000, 0, 10));
    assert_eq!((part.misplaced_bytes, part.surplus_bytes, outcome.foreign_streams), (0, 0, 0));
    let took = part.finished_at.unwrap().saturating_since(part.started_at.unwrap());
    assert!((1600..1900).contains(&took.as_millis()), "{took}");
}

#[test]
fn two_paths_carry_more_than_one() {
    let body = format!("{TWO}[[workload]]\nkind = 'file'\nsize = '20MB'\n");
    let times = [&[0][..], &[1], &[0, 1]].map(|paths| outcome(&body, paths, 1).ended_at.as_nanos() as f64 / 1e9);
    assert!(times[2] < 0.6 * times[0] && times[2] < 0.6 * times[1], "{times:?}");
}

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_seed_another() {
    let body = format!("{TWO}loss = '1%'\n[[workload]]\nkind = 'stream'\nsize = '3MB'\n");
    let [one, same, other] = [1, 1, 2].map(|seed| outcome(&body, &[0, 1], seed));
    assert_eq!(one, same);
    assert!(one.is_complete() && other.is_complete());
    assert_ne!(one.ended_at, other.ended_at);
}

#[test]
fn messages_take_a_one_way_delay_and_requests_a_round_trip() {
    let body = format!(
        "{TWO}[[workload]]\nkind = 'messages'\nsize = '200B'\nevery = '10ms'\ncount = 50\narrivals = 'poisson'\n\
         [[workload]]\nkind = 'request-response'\nrequest = '100B'\nresponse = '2000B'\nevery = '20ms'\ncount = 30\n"
    );
    let outcome = outcome(&body, &[0], 3);
    assert!(outcome.is_complete(), "{outcome:?}");
    let [messages, requests] = &outcome.parts[..] else { panic!("two parts") };
    assert_eq!((messages.latencies.len(), requests.latencies.len()), (50, 30));
    let (message, request) = (messages.latency(5_000).unwrap(), requests.latency(5_000).unwrap());
    assert!((10_000..11_500).contains(&message.as_micros()), "{message}");
    assert!((20_000..23_000).contains(&request.as_micros()), "{request}");
    assert_eq!((requests.delivered.timeline.bytes, requests.sent_bytes), (60_000, 3_000));
}

#[test]
fn work_without_end_ends_with_the_run() {
    let body = format!("{TWO}[[workload]]\nkind = 'stream'\n");
    let scenario = scenario(&body);
    assert_eq!(scenario.parts[0].work, Work::Stream { size: None });
    let outcome = outcome(&body, &[0], 1);
    assert_eq!(outcome.ended_at.since_start(), Duration::from_secs(10));
    assert!(outcome.is_complete());
    let share = outcome.parts[0].delivered.timeline.bytes as f64 * 8.0 / 10.0 / 50e6;
    assert!((0.9..0.98).contains(&share), "{share}");
}

#[test]
fn a_failed_connection_fails_its_checks_even_if_the_work_has_no_end() {
    let body = format!(
        "{TWO}[transport]\nidle-timeout = '1s'\n[[fault]]\nlink = 'a'\nat = '2s'\nstate = 'silent'\n\
         [[workload]]\nkind = 'stream'\n"
    );
    let outcome = outcome(&body, &[0], 1);
    assert!(outcome.failure.is_some() && outcome.ended_at.since_start() < Duration::from_secs(5), "{outcome:?}");
    let part = &outcome.parts[0];
    assert!(part.finished_at.is_none() && part.missing_bytes() > 0, "{part:?}");
    let failed = verdicts(&scenario(&body), &outcome).into_iter().filter(|verdict| !verdict.passes);
    assert_eq!(failed.map(|verdict| verdict.kind).collect::<Vec<_>>(), ["connection", "complete"]);
}

#[test]
fn a_silent_link_affects_packets_and_causes_a_measured_gap() {
    let body = format!(
        "{TWO}[[fault]]\nlink = 'a'\nat = '500ms'\nuntil = '1500ms'\nstate = 'silent'\n\
         [[workload]]\nkind = 'stream'\nsize = '10MB'\n"
    );
    let outcome = outcome(&body, &[0], 1);
    assert!(outcome.is_complete());
    let fault = outcome.fault_outcomes[0];
    assert_eq!((fault.occurrences, fault.effective), (1, 1));
    assert!(fault.packets > 5, "{fault:?}");
    let gap = outcome.parts[0].delivered.gaps[0];
    assert!((1000..2500).contains(&gap.length.as_millis()), "{gap:?}");
}

#[test]
fn a_link_that_is_always_silent_delivers_nothing() {
    let body = format!("{TWO}[[fault]]\nlink = 'a'\nat = '0'\nstate = 'silent'\n");
    let outcome = outcome(&body, &[0], 1);
    assert!(!outcome.is_complete());
    assert_eq!((outcome.connected_at, outcome.parts[0].missing_bytes()), (None, 1_000_000));
}

/// Otherwise ten million packets would be sent at one virtual time, up to the limit of a key.
#[test]
fn a_link_that_takes_no_time_is_refused_before_the_run() {
    let scenario = scenario("[[link]]\nname = 'a'\n[[workload]]\nkind = 'stream'\n");
    let plan = RunPlan { paths: vec![0], seed: 1 };
    let refused = Memory.run(&scenario, &plan, &mut |_| panic!("the run must not start"));
    let Err(WorldError::Unsuitable(message)) = refused else { panic!("{refused:?}") };
    assert!(message.starts_with("link.rate: link \"a\" takes no time"), "{message}");
}

#[test]
fn the_progress_callback_can_stop_a_run() {
    let scenario = scenario(&format!("{TWO}[[workload]]\nkind = 'file'\n"));
    let plan = RunPlan { paths: vec![0], seed: 1 };
    let mut looks = 0;
    let stopped = Memory.run(&scenario, &plan, &mut |progress| {
        looks += 1;
        progress.now.since_start() < Duration::from_secs(1)
    });
    assert_eq!(stopped, Err(WorldError::Stopped));
    assert!(looks > 1);
}

/// The server's driver removes a connection that idles out before the application has accepted it.
#[test]
fn a_connection_that_ends_before_it_is_accepted_is_accounted_for() {
    let body = "[transport]\nidle-timeout = '5s'\n[[link]]\nname = 'a'\nrate = '50Mb/s'\ndelay = '10ms'\nqueue = '50ms'\n\
                [[fault]]\nlink = 'a'\nat = '15ms'\ndirection = 'forward'\nstate = 'silent'\n\
                [[workload]]\nkind = 'stream'\n";
    let outcome = outcome(body, &[0], 1);
    assert!(outcome.failure.is_some() && !outcome.is_complete(), "{outcome:?}");
}

/// Corrupted headers may name unknown versions, which are answered, and unknown connections. A run
/// panics if a datagram is unaccounted for.
#[test]
fn datagrams_with_corrupt_headers_are_accounted_for() {
    let text = "[[link]]\nname = 'a'\nrate = '500kb/s'\ndelay = '10ms'\ncorrupt = '30%'\nqueue = '50ms'\n\
                [[workload]]\nkind = 'stream'\n";
    let corrupted: u64 = (1..=600)
        .map(|seed| outcome(text, &[0], seed).link_outcomes[0].stats.iter().map(|one| one.corrupted).sum::<u64>())
        .sum();
    assert!(corrupted > 1_000, "{corrupted}");
}
