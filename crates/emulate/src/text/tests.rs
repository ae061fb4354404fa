use std::io;

use netem::{BurstLoss, Change, Distribution, Jitter, LineState, Schedule};
use proptest::prelude::*;
use units::{Rate, Ratio};

use super::*;

fn no_files(_: &Path) -> io::Result<String> {
    Err(io::ErrorKind::NotFound.into())
}

fn parse(text: &str) -> LinkText {
    LinkText::parse(text, 0, no_files).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> String {
    match LinkText::parse(text, 0, no_files) {
        Ok(link) => panic!("{text:?} was taken as {link:?}"),
        Err(error) => error.to_string(),
    }
}

const MS: u64 = 1_000_000;

fn ms(millis: u64) -> Duration {
    Duration::from_nanos(millis * MS)
}

#[test]
fn an_empty_text_is_an_ideal_link_in_both_directions() {
    for text in ["", "  "] {
        let link = parse(text);
        assert_eq!(link.forward, LinkConfig::default());
        assert_eq!(link.backward, LinkConfig::default());
        assert_eq!(link.device, DeviceText::default());
    }
}

#[test]
fn every_setting_of_a_link_can_be_parsed() {
    let link = parse(
        "rate=100Mb/s, delay=10ms, jitter=normal 5ms reorders, loss=0.5%, bursts=1% 25% 80% 0.1%, reorder=2% 7ms, \
         duplicate=3%, corrupt=0.0001%, queue=30ms, codel=4ms 90ms ecn, overhead=38B, state=held",
    );
    let expected = LinkConfig {
        rate: Some(Rate::from_mbps(100)),
        trace: None,
        delay: ms(10),
        jitter: Some(Jitter { distribution: Distribution::Normal { deviation: ms(5) }, reorders: true }),
        loss: Ratio::from_millionths(5_000),
        burst_loss: Some(BurstLoss {
            good_to_bad: Ratio::from_millionths(10_000),
            bad_to_good: Ratio::from_millionths(250_000),
            loss_good: Ratio::from_millionths(1_000),
            loss_bad: Ratio::from_millionths(800_000),
        }),
        reorder: Ratio::from_millionths(20_000),
        reorder_by: ms(7),
        duplicate: Ratio::from_millionths(30_000),
        corrupt: Ratio::from_millionths(1),
        queue_bytes: LinkConfig::default().queue_bytes,
        queue_delay: Some(ms(30)),
        discipline: Discipline::CoDel(CoDel { target: ms(4), interval: ms(90), ecn: true }),
        overhead_bytes: 38,
        state: LineState::Held,
        schedule: None,
    };
    assert_eq!(link.forward, expected);
    assert_eq!(link.backward, expected);
}

#[test]
fn the_other_distributions_queues_and_disciplines_can_be_parsed() {
    let config = |text| parse(text).forward;
    let jitter = |distribution| Some(Jitter { distribution, reorders: false });
    assert_eq!(config("jitter=uniform 5ms").jitter, jitter(Distribution::Uniform { max: ms(5) }));
    let pareto = Distribution::Pareto { scale: ms(1), shape_hundredths: 150, cap: ms(100) };
    assert_eq!(config("jitter=pareto 1ms 1.5 100ms").jitter, jitter(pareto));
    assert_eq!(config("jitter=none").jitter, None);
    assert_eq!(config("queue=64KiB").queue_bytes, 65_536);
    assert_eq!(config("codel").discipline, Discipline::CoDel(CoDel::default()));
    assert_eq!(config("codel=ecn").discipline, Discipline::CoDel(CoDel { ecn: true, ..CoDel::default() }));
    assert_eq!(config("codel=none").discipline, Discipline::DropTail);
    let gilbert = config("bursts=1% 25%").burst_loss.unwrap();
    assert_eq!((gilbert.loss_bad, gilbert.loss_good), (Ratio::ONE, Ratio::ZERO));
    assert_eq!(LinkText::parse("", 28, no_files).unwrap().forward.overhead_bytes, 28);
    assert_eq!(LinkText::parse("overhead=0", 28, no_files).unwrap().forward.overhead_bytes, 0);
}

#[test]
fn scheduled_changes_are_sorted_and_repeat() {
    let state = Change::State;
    let schedule = |text| parse(text).forward.schedule.unwrap();
    assert_eq!(
        schedule("down=5s..6s held, down=2s..3s silent, at=2.5s loss=10%, at=3s rate=none"),
        Schedule::once([
            (ms(2000), state(LineState::Silent)),
            (ms(2500), Change::Loss(Ratio::from_millionths(100_000))),
            (ms(3000), state(LineState::Up)),
            (ms(3000), Change::Rate(None)),
            (ms(5000), state(LineState::Held)),
            (ms(6000), state(LineState::Up)),
        ])
        .unwrap()
    );
    assert_eq!(
        schedule("at=1s delay=50ms,at=2s delay=10ms,every=4s"),
        Schedule::repeating(ms(4000), [(ms(1000), Change::Delay(ms(50))), (ms(2000), Change::Delay(ms(10)))]).unwrap()
    );
    assert_eq!(schedule("flap=10s 1s silent"), Schedule::flapping(ms(10_000), ms(1000), LineState::Silent).unwrap());
    let changes = "at=1s jitter=uniform 2ms,at=1s bursts=1% 2%,at=1s reorder=1% 2ms,at=1s duplicate=1%,at=1s corrupt=1%,\
                   at=1s state=held";
    assert_eq!(schedule(changes).changes().len(), 6);
    assert_eq!(parse("down=none").forward.schedule, None);
}

#[test]
fn the_backward_direction_differs_where_set() {
    let link = parse("rate=100Mb/s,delay=10ms,loss=1%,back.rate=10Mb/s,back.loss=0%");
    assert_eq!((link.forward.rate, link.backward.rate), (Some(Rate::from_mbps(100)), Some(Rate::from_mbps(10))));
    assert_eq!((link.forward.delay, link.backward.delay), (ms(10), ms(10)));
    assert!(!link.forward.loss.is_zero() && link.backward.loss.is_zero());

    let link = parse("down=1s..2s silent,at=3s loss=1%,back.down=none");
    assert!(link.forward.schedule.is_some() && link.backward.schedule.is_none());

    let read = |path: &Path| {
        assert_eq!(path, Path::new("some/file"));
        Ok("1\n2\n".to_owned())
    };
    let link = LinkText::parse("rate=1Mb/s,back.trace=some/file", 0, read).unwrap();
    assert!(link.backward.rate.is_none() && link.backward.trace.is_some() && link.forward.trace.is_none());
}

#[test]
fn device_settings_can_be_parsed() {
    let link = parse("name=l0,mtu=9000,left=10.1.0.1/24,left=fd00::1/64,right=10.1.0.2/24");
    let expected = DeviceText {
        name: Some("l0".into()),
        mtu: Some(9000),
        left: vec!["10.1.0.1/24".parse().unwrap(), "fd00::1/64".parse().unwrap()],
        right: vec!["10.1.0.2/24".parse().unwrap()],
    };
    assert_eq!(link.device, expected);
}

/// Invalid texts, each with a part of the expected error message.
const WRONG: &[(&str, &str)] = &[
    ("rate=fast", "400Mb/s"),
    ("rate=100", "400Mb/s"),
    ("rate=0", "must exceed zero"),
    ("delay=10", "30ms"),
    ("delay=-1ms", "30ms"),
    ("jitter=5ms", "uniform MAX"),
    ("jitter=normal", "uniform MAX"),
    ("jitter=normal 0", "must exceed zero"),
    ("jitter=pareto 1ms 1.555 10ms", "pareto SCALE SHAPE CAP"),
    ("loss=1", "percentage"),
    ("loss=101%", "percentage"),
    ("loss=+1%", "percentage"),
    ("loss=0.00001%", "percentage"),
    ("loss=none", "percentage"),
    ("bursts=1%", "two to four"),
    ("bursts=0% 1%", "must exceed zero"),
    ("reorder=1%", "an additional delay"),
    ("reorder=1% 0", "must exceed zero"),
    ("duplicate=x", "percentage"),
    ("corrupt=%", "percentage"),
    ("queue=30", "64KiB"),
    ("queue=30ms", "needs a rate"),
    ("codel=5ms", "target and an interval"),
    ("codel=0 100ms", "must exceed zero"),
    ("overhead=28", "64KiB"),
    ("state=down", "silent"),
    ("state", "silent"),
    ("down=2s", "a start, an end"),
    ("down=2s..3s", "a start, an end"),
    ("down=2s..3s up", "a start, an end"),
    ("down=3s..2s silent", "end is before the start"),
    ("down=1s..3s silent,down=2s..4s held", "overlaps"),
    ("flap=1s silent", "the time up"),
    ("flap=0 1s silent", "above zero"),
    ("flap=1s 1s silent,at=1s loss=1%", "cannot be combined"),
    ("at=1s", "settings that can change"),
    ("at=1s queue=1ms", "settings that can change"),
    ("at=1s loss=2", "percentage"),
    ("at=5s loss=1%,every=5s", "before the end of the period"),
    ("at=5s rate=0", "must exceed zero"),
    ("every=5s", "nothing to repeat"),
    ("every=0,at=0s loss=1%", "must exceed zero"),
    ("trace", "a file"),
    ("trace=no/such/file", "cannot read the file"),
    ("name=", "1 to 15"),
    ("name=a b", "1 to 15"),
    ("name=sixteenletterss0", "1 to 15"),
    ("name=..", "1 to 15"),
    ("mtu=67", "68"),
    ("mtu=65536", "65535"),
    ("left=10.1.0.1", "10.1.0.1/24"),
    ("right=10.1.0.1/33", "10.1.0.1/24"),
    ("back.name=l0", "in both directions"),
    ("speed=1Mb/s", "there is no such key"),
    ("RATE=1Mb/s", "there is no such key"),
    ("back.speed=1Mb/s", "there is no such key"),
    ("rate=1Mb/s,rate=2Mb/s", "given twice"),
    ("rate=1Mb/s,trace=file", "cannot read"),
    (",", "expected one of"),
    ("rate=1Mb/s,", "expected one of"),
    ("=1", "expected one of"),
];

#[test]
fn errors_name_the_item_and_the_permitted_values() {
    for (text, expected) in WRONG {
        let shown = error(text);
        assert!(shown.contains(expected), "{text}: {shown}");
        // The key is quoted, alone or with its value.
        let last = text.rsplit(',').next().unwrap();
        let key = last.split('=').next().unwrap();
        assert!(shown.contains(&format!("`{last}`")) || shown.contains(&format!("`{key}`")), "{text}: {shown}");
    }
    let long = "at=1s loss=1%,".repeat(ITEMS_MAX + 1);
    assert!(error(&long).contains("1024"));
    let shown = LinkText::parse("trace=file", 0, |_| Ok("1\nx".into())).unwrap_err().to_string();
    assert!(shown.contains("line 2"), "{shown}");
    let both = LinkText::parse("rate=1Mb/s,trace=file", 0, |_| Ok("1".into())).unwrap_err().to_string();
    assert!(both.contains("`trace`") && both.contains("only one"), "{both}");
}

proptest! {
    /// Checks that every text gives valid settings or an error.
    #[test]
    fn parsing_never_panics(items in prop::collection::vec("(back\\.)?(rate|trace|jitter|at|down|flap|every|codel|left|x)?=?[0-9a-z%./ =]{0,12}", 0..6)) {
        if let Ok(link) = LinkText::parse(&items.join(","), 0, no_files) {
            prop_assert_eq!(link.forward.validate(), Ok(()));
            prop_assert_eq!(link.backward.validate(), Ok(()));
        }
    }
}
