use netem::{Discipline, Distribution, Jitter};
use units::{Rate, Ratio};

use crate::model::{CheckKind, Work};
use crate::testing::{parsed, scenario, with_head};

use super::*;

/// Lines before the body that [`with_head`] adds.
const HEAD_LINES: usize = 5;
const ENDLESS: &str = "[[workload]]\nkind = 'stream'\n";
const LINK: &str = "[[link]]\nname = 'a'\nrate = '10Mb/s'\n";

/// Returns the problems of a body, with lines relative to it.
fn problems(body: &str) -> Vec<(usize, String, String)> {
    let error = parsed(&with_head(body)).expect_err(body);
    assert!(error.to_string().starts_with("test.toml:"));
    error.problems.into_iter().map(|problem| (problem.line - HEAD_LINES, problem.key, problem.message)).collect()
}

/// Returns the only problem.
fn problem(body: &str) -> (usize, String, String) {
    let mut all = problems(body);
    assert_eq!(all.len(), 1, "{body}: {all:?}");
    all.remove(0)
}

/// A file that uses most keys.
const FULL_FILE: &str = "
    seeds = 3
    [hosts.a]
    name = 'laptop'
    send-buffer = '4MiB'
    [[link]]
    name = 'wifi'
    rate = '200Mb/s'
    delay = '5ms'
    jitter = { distribution = 'pareto', scale = '1ms', shape = 1.5, cap = '50ms', reorders = true }
    loss = '0.5%'
    bursts = { enter = '0.1%', leave = '20%', loss = '80%' }
    reorder = { share = '1%', by = '3ms' }
    queue = '30ms'
    codel = { target = '10ms' }
    back = { rate = '50Mb/s', jitter = { distribution = 'none' }, bursts = { enter = '0' }, queue = '64KiB' }
    [[link]]
    name = 'lte'
    trace = 'one-a-millisecond'
    overhead = '28B'
    [[path]]
    link = 'wifi'
    [[path]]
    link = 'lte'
    name = 'mobile'
    backup = true
    [transport]
    scheduler = 'redundant:2'
    congestion = 'bbr'
    policy = 'DRCA'
    datagram-size = '1300B'
    [[workload]]
    kind = 'messages'
    size = '200B'
    every = '20ms'
    count = 100
    arrivals = 'poisson'
    start = '1s'
    priority = 1
    [[workload]]
    name = 'bulk'
    kind = 'stream'
    [[check]]
    kind = 'latency'
    percentile = 99.5
    at-most = '50ms'
    [[check]]
    kind = 'share-of-capacity'
    at-least = '90%'
    from = '1s'
    [[subset]]
    paths = ['mobile', 'wifi']
";

#[test]
fn all_link_settings_are_parsed() {
    let scenario = scenario(FULL_FILE);
    let [wifi, lte] = &scenario.links[..] else { panic!("two links") };
    assert_eq!((wifi.forward.rate, wifi.back.rate), (Some(Rate::from_mbps(200)), Some(Rate::from_mbps(50))));
    let pareto =
        Distribution::Pareto { scale: Duration::from_millis(1), shape_hundredths: 150, cap: Duration::from_millis(50) };
    assert_eq!(wifi.forward.jitter, Some(Jitter { distribution: pareto, reorders: true }));
    assert_eq!((wifi.back.jitter, wifi.back.burst_loss), (None, None));
    assert_eq!(
        wifi.back.loss,
        Ratio::from_millionths(5000),
        "missing keys of `back` are those of the forward direction"
    );
    assert!(
        matches!(wifi.forward.discipline, Discipline::CoDel(codel) if codel.interval == Duration::from_millis(100))
    );
    assert_eq!((wifi.forward.queue_bytes_max(), wifi.back.queue_bytes_max()), (750_000, 65_536));
    assert_eq!((lte.forward.overhead_bytes, wifi.forward.overhead_bytes), (28, 42));
    assert_eq!(lte.forward.rate, None);
}

#[test]
fn all_other_settings_are_parsed() {
    let scenario = scenario(FULL_FILE);
    assert!(scenario.paths[1].is_backup && scenario.paths[1].name == "mobile" && scenario.paths[0].name == "wifi");
    assert_eq!((scenario.hosts[0].name.as_str(), scenario.hosts[1].name.as_str()), ("laptop", "b"));
    assert_eq!(scenario.hosts[0].send_buffer, 4 << 20);
    assert_eq!((scenario.seeds, scenario.transport.datagram_size), (3, 1300));
    assert_eq!(scenario.transport.policy, quic::Policy::DRCA);
    assert_eq!(scenario.parts[1].work, Work::Stream { size: None });
    assert_eq!(scenario.parts[0].name, "messages");
    assert!(matches!(scenario.checks[0].kind, CheckKind::Latency { percentile_hundredths: 9950, .. }));
    assert!(matches!(scenario.checks[1].kind, CheckKind::ShareOfCapacity { at_least: 0.9, .. }));
    assert_eq!(scenario.subsets, [vec![0, 1]]);
}

#[test]
fn unknown_keys_are_reported_in_every_table() {
    for (body, line, key) in [
        (format!("{LINK}speed = '1Mb/s'"), 4, "link.speed"),
        (format!("{LINK}jitter = {{ distribution = 'uniform', max = '1ms', min = '1ms' }}"), 4, "link.jitter.min"),
        (format!("{LINK}back = {{ name = 'x' }}"), 4, "link.back.name"),
        (format!("{LINK}bursts = {{ enter = '1%', leave = '1%', p = '1%' }}"), 4, "link.bursts.p"),
        (format!("{LINK}reorder = {{ share = '1%', by = '1ms', x = 1 }}"), 4, "link.reorder.x"),
        (format!("{LINK}codel = {{ limit = 3 }}"), 4, "link.codel.limit"),
        (format!("{LINK}codel = {{ ecn = true }}"), 4, "link.codel.ecn"),
        (format!("{LINK}[[fault]]\nlink = 'a'\nat = '1s'\nstate = 'held'\nhow = 'x'"), 8, "fault.how"),
        (format!("{LINK}[[path]]\nlink = 'a'\nrate = '1Mb/s'"), 6, "path.rate"),
        (format!("{LINK}[hosts.c]\nname = 'c'"), 4, "hosts.c"),
        (format!("{LINK}[hosts.a]\ncores = 4"), 5, "hosts.a.cores"),
        (format!("{LINK}[transport]\nmtu = 1500"), 5, "transport.mtu"),
        (format!("{LINK}[[workload]]\nkind = 'stream'\nchunk = '1MiB'"), 6, "workload.chunk"),
        (format!("{LINK}[[check]]\nkind = 'gap'\nat-most = '1s'\nat-least = '1s'"), 7, "check.at-least"),
        (format!("{LINK}[links]"), 4, "links"),
        (format!("seed = 1\n{LINK}"), 1, "scenario.seed"),
        (
            format!(
                "{LINK}[[path]]\nlink = 'a'\n[[path]]\nlink = 'a'\nname = 'b'\n[[subset]]\npaths = ['a', 'b']\nx = 1"
            ),
            11,
            "subset.x",
        ),
    ] {
        let (at, found, message) = problem(&body);
        assert_eq!((at, found.as_str()), (line, key), "{body}");
        assert!(message.starts_with("unknown key; allowed here: "), "{message}");
    }
}

/// Asserts that each body has one problem, in this line, with this key and a message that contains
/// this text.
#[track_caller]
fn assert_problems<const N: usize>(cases: [(String, usize, &str, &str); N]) {
    for (body, line, key, expected) in cases {
        let (at, found, message) = problem(&body);
        assert_eq!((at, found.as_str()), (line, key), "{body}: {message}");
        assert!(message.contains(expected), "{body}: {message}");
    }
}

#[test]
fn invalid_link_settings_are_reported() {
    assert_problems([
        ("[[link]]\nname = 'a'\nrate = 'fast'".to_owned(), 3, "link.rate", "400Mb/s"),
        ("[[link]]\nname = 'a'\nrate = '0'".to_owned(), 3, "link.rate", "above zero"),
        ("[[link]]\nname = 'a'\nrate = 100".to_owned(), 3, "link.rate", "a string in quotes, found a whole number"),
        ("[[link]]\nrate = '1Mb/s'".to_owned(), 1, "link.name", "is missing"),
        ("[[link]]\nname = 'a b'".to_owned(), 2, "link.name", "letters, digits"),
        (format!("{LINK}trace = 'one-a-millisecond'"), 4, "link.trace", "a rate or a trace"),
        ("[[link]]\nname = 'a'\ntrace = 'no'".to_owned(), 3, "link.trace", "no trace \"no\""),
        ("[[link]]\nname = 'a'\ntrace = '/etc/passwd'".to_owned(), 3, "link.trace", "in this file's folder"),
        ("[[link]]\nname = 'a'\ntrace = 'x/../../y'".to_owned(), 3, "link.trace", "no \"..\""),
        ("[[link]]\nname = 'a'\nback = { trace = '..' }".to_owned(), 3, "link.back.trace", "in this file's folder"),
        ("[[link]]\nname = 'a'\ntrace = ''".to_owned(), 3, "link.trace", "in this file's folder"),
        ("[[link]]\nname = 'a'\ntrace = 'in/a/folder'".to_owned(), 3, "link.trace", "no trace \"in/a/folder\""),
        (format!("{LINK}delay = '10'"), 4, "link.delay", "30ms"),
        (format!("{LINK}loss = '101%'"), 4, "link.loss", "0% to 100%"),
        (format!("{LINK}loss = 0.1"), 4, "link.loss", "found a number"),
        (format!("{LINK}queue = '5 packets'"), 4, "link.queue", "256KiB"),
        ("[[link]]\nname = 'a'\nqueue = '30ms'".to_owned(), 3, "link.queue", "needs a rate"),
    ]);
}

#[test]
fn invalid_link_impairments_are_reported() {
    assert_problems([
        (format!("{LINK}jitter = {{ distribution = 'gauss' }}"), 4, "link.jitter.distribution", "normal, pareto"),
        (format!("{LINK}jitter = {{ distribution = 'normal' }}"), 4, "link.jitter.deviation", "is missing"),
        (format!("{LINK}jitter = {{ distribution = 'uniform', max = '0' }}"), 4, "link.jitter.max", "above zero"),
        (
            format!("{LINK}jitter = {{ distribution = 'pareto', scale = '1ms', cap = '1s', shape = 0 }}"),
            4,
            "link.jitter.shape",
            "between 0.01 and 100",
        ),
        (format!("{LINK}jitter = 'normal'"), 4, "link.jitter", "expected a table"),
        (format!("{LINK}bursts = {{ enter = '1%' }}"), 4, "link.bursts.leave", "is missing"),
        (format!("{LINK}reorder = {{ share = '1%' }}"), 4, "link.reorder.by", "is missing"),
        (format!("{LINK}codel = {{ target = '1s' }}"), 4, "link.codel", "at most interval"),
        (format!("{LINK}overhead = '1MB'"), 4, "link.overhead", "between 0 and 10000 bytes"),
    ]);
}

#[test]
fn invalid_paths_hosts_and_transport_are_reported() {
    assert_problems([
        (format!("{LINK}{LINK}"), 4, "link.name", "is taken"),
        (format!("{LINK}[[path]]\nlink = 'b'"), 5, "path.link", "there are a"),
        (format!("{LINK}[[path]]\nlink = 'a'\nbackup = 1"), 6, "path.backup", "true or false"),
        (format!("{LINK}[[path]]\nlink = 'a'\nbackup = true"), 4, "path", "at least one must not be"),
        (format!("{LINK}[hosts.a]\nname = 'x'\n[hosts.b]\nname = 'x'"), 7, "hosts.b.name", "\"x\" is taken"),
        (format!("{LINK}[hosts.a]\nname = 'b'"), 5, "hosts.a.name", "\"b\" is taken"),
        (format!("{LINK}[hosts.b]\nname = 'a'"), 5, "hosts.b.name", "\"a\" is taken"),
        (format!("{LINK}[hosts.b]\nreceive-window = '1B'"), 5, "hosts.b.receive-window", "between 65536"),
        (format!("{LINK}[hosts.b]\nsend-buffer = '1025GiB'"), 5, "hosts.b.send-buffer", "and 1099511627776 bytes"),
        (format!("{LINK}[transport]\ncongestion = 'reno'"), 5, "transport.congestion", "reno"),
        (format!("{LINK}[transport]\nscheduler = 'best'"), 5, "transport.scheduler", "round-robin"),
        (format!("{LINK}[transport]\nscheduler = 'earliest:3'"), 5, "transport.scheduler", "unknown scheduler"),
        (format!("{LINK}[transport]\npolicy = 'DCRA'"), 5, "transport.policy", "DRDA, DRCA, CRDA and CRCA"),
        (format!("{LINK}[transport]\npolicy = 1"), 5, "transport.policy", "string"),
        (format!("{LINK}[transport]\ndatagram-size = '900B'"), 5, "transport.datagram-size", "between 1200"),
    ]);
}

#[test]
fn invalid_workloads_are_reported() {
    assert_problems([
        (format!("{LINK}[[workload]]\nkind = 'video'"), 5, "workload.kind", "request-response"),
        (format!("{LINK}[[workload]]\nkind = 'file'\nsize = '3B'"), 6, "workload.size", "between 16"),
        (
            format!("{LINK}[[workload]]\nkind = 'file'\nsize = '8195B'\nchunk = '4096B'"),
            6,
            "workload.size",
            "last chunk",
        ),
        (format!("{LINK}[[workload]]\nkind = 'messages'\nsize = '20B'\ncount = 3"), 4, "workload.every", "is missing"),
        (
            format!("{LINK}[[workload]]\nkind = 'messages'\nsize = '20B'\ncount = 0\nevery = '1s'"),
            7,
            "workload.count",
            "between 1",
        ),
        (
            format!("{LINK}[[workload]]\nkind = 'stream'\npriority = 9999999"),
            6,
            "workload.priority",
            "between -1000000",
        ),
    ]);
}

#[test]
fn invalid_faults_are_reported() {
    assert_problems([
        (format!("{LINK}[[fault]]\nat = '1s'\nstate = 'held'"), 4, "fault.link", "is missing"),
        (format!("{LINK}[[fault]]\nlink = 'a'\nat = '1s'"), 4, "fault", "changes nothing"),
        (format!("{LINK}[[fault]]\nlink = 'a'\nat = '1s'\nstate = 'dead'"), 7, "fault.state", "silent, held, up"),
        (
            format!("{LINK}[[fault]]\nlink = 'a'\nat = '1s'\nuntil = '1s'\nloss = '1%'"),
            7,
            "fault.until",
            "later than at",
        ),
        (format!("{LINK}[[fault]]\nlink = 'a'\nat = '1s'\nevery = '1s'\nloss = '1%'"), 7, "fault.every", "needs until"),
        (
            format!("{LINK}[[fault]]\nlink = 'a'\nat = '1s'\nuntil = '3s'\nevery = '1s'\nloss = '1%'"),
            8,
            "fault.every",
            "must be longer",
        ),
        (
            format!("{LINK}[[fault]]\nlink = 'a'\nat = '1s'\nloss = '1%'\ndirection = 'up'"),
            8,
            "fault.direction",
            "back",
        ),
    ]);
}

#[test]
fn invalid_checks_are_reported() {
    assert_problems([
        (format!("{LINK}[[check]]\nkind = 'speed'"), 5, "check.kind", "share-of-capacity"),
        (format!("{LINK}[[check]]\nkind = 'latency'\npercentile = 99\nat-most = '1s'"), 5, "check.kind", "messages or"),
        (format!("{LINK}[[check]]\nkind = 'order-kept'\nof = 'file'"), 6, "check.of", "a stream"),
        (format!("{LINK}{ENDLESS}[[check]]\nkind = 'nothing-lost'"), 7, "check.kind", "give it a size"),
        (format!("{LINK}{ENDLESS}[[check]]\nkind = 'complete'\nwithin = '1s'\nof = 'stream'"), 9, "check.of", "a size"),
        (format!("{LINK}[[check]]\nkind = 'gap'\nat-most = '999us'"), 6, "check.at-most", "at least 1.0 ms"),
        (format!("{LINK}[[check]]\nkind = 'goodput'\nat-least = 0.5"), 6, "check.at-least", "found a number"),
        (format!("{LINK}[[check]]\nkind = 'gap'\nat-most = '1s'\nof = 'x'"), 7, "check.of", "there are file"),
        (
            format!("{LINK}[[check]]\nkind = 'gap'\nat-most = '1s'\nfrom = '2s'\nuntil = '1s'"),
            8,
            "check.until",
            "later than from",
        ),
        (format!("{LINK}[[check]]\nkind = 'path-share'\npath = 'a'"), 4, "check.at-least", "is missing"),
        (
            format!("{LINK}[[check]]\nkind = 'happened'\nlink = 'a'\ncounter = 'x'"),
            7,
            "check.counter",
            "dropped-by-codel",
        ),
        (
            "[[link]]\nname = 'a'\n[[check]]\nkind = 'share-of-capacity'\nat-least = 1".to_owned(),
            4,
            "check.kind",
            "no rate",
        ),
        (format!("{LINK}[[subset]]\npaths = ['a']"), 5, "subset.paths", "at least two"),
    ]);
}

/// Checks with the duration of 10 s that [`with_head`] sets.
#[test]
fn times_after_the_end_of_the_run_are_refused() {
    let check = |rest: &str| format!("{LINK}[[check]]\nkind = {rest}");
    assert_problems([
        (format!("{LINK}{ENDLESS}start = '10s'"), 4, "workload.start", "before the end of the run, which is 10"),
        (check("'goodput'\nat-least = '1Mb/s'\nfrom = '10s'"), 4, "check.from", "before the end of the run"),
        (check("'gap'\nat-most = '1s'\nuntil = '10001ms'"), 4, "check.until", "after the end of the run"),
        (check("'share-of-capacity'\nat-least = 1\nfrom = '11s'\nuntil = '12s'"), 4, "check.from", "before the end"),
        (check("'complete'\nwithin = '10001ms'"), 4, "check.within", "must not exceed 10"),
    ]);
    for last in ["goodput'\nat-least = '1Mb/s'\nfrom = '9999ms'\nuntil = '10s'", "complete'\nwithin = '10s'"] {
        scenario(&check(&format!("'{last}")));
    }
}

/// Checks each counter with a link setting and a fault that increase it.
#[test]
fn a_counter_that_can_never_increase_is_refused() {
    let body = |of_link: &str, of_fault: &str, counter: &str| {
        let fault = if of_fault.is_empty() { "" } else { "[[fault]]\nlink = 'a'\nat = '1s'\n" };
        format!(
            "{fault}{of_fault}\n[[check]]\nkind = 'happened'\nlink = 'a'\ncounter = '{counter}'\n\
             [[link]]\nname = 'b'\nloss = '1%'\n{LINK}{of_link}\n[[path]]\nlink = 'a'\n"
        )
    };
    for (counter, of_link, of_fault) in [
        ("lost", "back = { loss = '1%' }", "loss = '1%'"),
        ("lost-in-bursts", "bursts = { enter = '1%', leave = '9%' }", "bursts = { enter = '1%', leave = '9%' }"),
        ("reordered", "reorder = { share = '1%', by = '1ms' }", "reorder = { share = '1%', by = '1ms' }"),
        ("duplicated", "duplicate = '1%'", "duplicate = '1%'\ndirection = 'back'"),
        ("corrupted", "corrupt = '1%'", "corrupt = '1%'"),
        ("dropped-by-codel", "codel = {}", ""),
        ("vanished", "", "state = 'silent'"),
    ] {
        for delay in ["", "delay = '1ms'"] {
            let (_, key, message) = problem(&body(delay, delay, counter));
            assert_eq!((key.as_str(), message.contains(counter)), ("check.counter", true), "{counter}: {message}");
        }
        for (of_link, of_fault) in [(of_link, ""), ("", of_fault)] {
            if of_link != of_fault {
                scenario(&body(of_link, of_fault, counter));
            }
        }
    }
    scenario(&body("", "", "overflowed"));
}

#[test]
fn one_mistake_neither_hides_nor_causes_others() {
    for (body, expected) in [
        // Valid keys are accepted even if others are missing or wrong.
        (
            format!("{LINK}[[workload]]\nkin = 'file'\nsize = '1MB'\nchunk = '1MiB'"),
            &["workload.kind", "workload.kin"][..],
        ),
        (format!("{LINK}[[check]]\nkin = 'gap'\nat-most = '1s'"), &["check.kind", "check.kin"]),
        (
            format!(
                "{LINK}[[workload]]\nkind = 'messages'\nsize = '20B'\nevery = '1s'\ncount = 1\n[[check]]\nkind = 'latency'\nat-most = '1s'"
            ),
            &["check.percentile"],
        ),
        (format!("{LINK}jitter = {{ max = '1ms', width = 1 }}"), &["link.jitter.distribution", "link.jitter.width"]),
        (
            format!("{LINK}jitter = {{ distribution = 'uniform', reorders = true, width = 1 }}"),
            &["link.jitter.max", "link.jitter.width"],
        ),
        (
            format!("{LINK}jitter = {{ distribution = 'pareto', scale = '1ms', width = 1 }}"),
            &["link.jitter.shape", "link.jitter.cap", "link.jitter.width"],
        ),
        (format!("{LINK}bursts = {{ leave = '1%', p = 1 }}"), &["link.bursts.enter", "link.bursts.p"]),
        (format!("{LINK}reorder = {{ by = '1ms', p = 1 }}"), &["link.reorder.share", "link.reorder.p"]),
    ] {
        let mut found: Vec<_> = problems(&body).into_iter().map(|(_, key, _)| key).collect();
        found.sort();
        let mut expected: Vec<_> = expected.iter().map(|key| (*key).to_owned()).collect();
        expected.sort();
        assert_eq!(found, expected, "{body}");
    }
}

#[test]
fn all_problems_are_reported_at_once_in_file_order() {
    let found = problems("[[link]]\nname = 'a'\nrate = 'x'\nspeed = 3\nloss = '200%'\n[[fault]]\nat = 'soon'");
    let keys: Vec<_> = found.iter().map(|(line, key, _)| (*line, key.as_str())).collect();
    assert!(keys.starts_with(&[(3, "link.rate"), (4, "link.speed"), (5, "link.loss")]), "{keys:?}");
    assert!(keys.contains(&(7, "fault.at")), "{keys:?}");
}

#[test]
fn missing_required_tables_are_reported() {
    let error = parsed("").unwrap_err().to_string();
    for message in ["test.toml:1: version: is missing", "[scenario]", "[[link]]", "[[workload]]"] {
        assert!(error.contains(message), "{error}");
    }
    let error = parsed("version = 2").unwrap_err().to_string();
    assert_eq!(error, "test.toml:1: version: is 2; this program supports version 1");
}

#[test]
fn toml_syntax_errors_are_reported_with_their_line() {
    let error = parsed("version = 1\n[scenario\nname = 'x'\n").unwrap_err();
    assert_eq!(error.problems[0].line, 2, "{error}");
    assert!(error.to_string().starts_with("test.toml:2: "), "{error}");
    let error = parsed("version = 1\nversion = 1\n").unwrap_err();
    assert_eq!(error.problems[0].line, 2, "{error}");
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let error = parsed(&" ".repeat(FILE_BYTES_MAX + 1)).unwrap_err().to_string();
    assert!(error.contains("longer than"), "{error}");
    let error = parsed(&with_head(&LINK.repeat(LINKS_MAX + 1))).unwrap_err();
    assert!(error.problems[0].message.contains("at most 32"), "{error}");
}

#[test]
fn of_very_many_problems_those_of_the_first_lines_are_reported() {
    // Keys are visited by name, not by line.
    let keys: String = (0..20_000).map(|index| format!("k{:05} = 0\n", 99_999 - index)).collect();
    let error = parsed(&with_head(&format!("{LINK}{keys}"))).unwrap_err();
    let lines: Vec<_> = error.problems.iter().map(|problem| problem.line - HEAD_LINES).collect();
    assert_eq!(lines, (4..4 + PROBLEMS_MAX).collect::<Vec<_>>());
}

#[test]
fn windows_and_buffers_accept_the_documented_range() {
    let scenario = scenario(&format!("{LINK}[hosts.a]\nreceive-window = '64KiB'\nsend-buffer = '1TiB'"));
    assert_eq!((scenario.hosts[0].receive_window, scenario.hosts[0].send_buffer), (65_536, 1 << 40));
}
