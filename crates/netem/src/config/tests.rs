use super::*;
use crate::jitter::Distribution;
use crate::schedule::Change;

/// Asserts that the settings are rejected with this error, and that the message contains `words`.
fn assert_rejected(config: &LinkConfig, expected: &ConfigError, words: &str) {
    let error = config.validate().expect_err(words);
    assert_eq!(&error, expected, "{config:?}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn the_default_config_is_valid() {
    assert_eq!(LinkConfig::default().validate(), Ok(()));
}

#[test]
fn contradictory_settings_are_rejected_with_a_reason() {
    let wire = LinkConfig::default;
    let stopped = LinkConfig { rate: Some(Rate::ZERO), ..wire() };
    assert_rejected(&stopped, &ConfigError::ZeroRate, "the rate of a link must exceed zero");
    let idle = LinkConfig { reorder: Ratio::ONE, ..wire() };
    assert_rejected(&idle, &ConfigError::ZeroReorderDelay, "reorder_by must exceed zero");
    let trace = Trace::from_millis([1]).ok();
    let both = LinkConfig { rate: Some(Rate::from_mbps(1)), trace: trace.clone(), ..wire() };
    assert_rejected(&both, &ConfigError::RateAndTrace, "rate and trace: only one");
    let timeless = LinkConfig { queue_delay: Some(Duration::from_millis(30)), ..wire() };
    assert_rejected(&timeless, &ConfigError::QueueDelayWithoutRate, "queue_delay needs a rate or a trace");
    assert_eq!(LinkConfig { trace, ..timeless }.validate(), Ok(()));
}

#[test]
fn jitter_must_have_a_width() {
    let (zero, some) = (Duration::ZERO, Duration::from_millis(1));
    let rejected = [
        Distribution::Uniform { max: zero },
        Distribution::Normal { deviation: zero },
        Distribution::Pareto { scale: zero, shape_hundredths: 150, cap: some },
        Distribution::Pareto { scale: some, shape_hundredths: 0, cap: some },
        Distribution::Pareto { scale: some, shape_hundredths: PARETO_TOO_FLAT, cap: some },
        Distribution::Pareto { scale: some, shape_hundredths: 150, cap: zero },
    ];
    for distribution in rejected {
        let config = LinkConfig { jitter: Some(Jitter { distribution, reorders: false }), ..LinkConfig::default() };
        assert_rejected(&config, &ConfigError::Jitter, "jitter: max, deviation, scale and cap must exceed zero");
    }
    let distribution = Distribution::Pareto { scale: some, shape_hundredths: PARETO_TOO_FLAT - 1, cap: some };
    let config = LinkConfig { jitter: Some(Jitter { distribution, reorders: true }), ..LinkConfig::default() };
    assert_eq!(config.validate(), Ok(()));
}

const PARETO_TOO_FLAT: u32 = crate::jitter::PARETO_SHAPE_HUNDREDTHS_MAX + 1;

#[test]
fn burst_loss_needs_both_transitions_and_a_loss() {
    let bursts = BurstLoss {
        good_to_bad: Ratio::new(1, 9),
        bad_to_good: Ratio::new(1, 3),
        loss_good: Ratio::ZERO,
        loss_bad: Ratio::ONE,
    };
    let with = |burst_loss| LinkConfig { burst_loss: Some(burst_loss), ..LinkConfig::default() };
    assert_eq!(with(bursts).validate(), Ok(()));
    for rejected in [
        BurstLoss { good_to_bad: Ratio::ZERO, ..bursts },
        BurstLoss { bad_to_good: Ratio::ZERO, ..bursts },
        BurstLoss { loss_bad: Ratio::ZERO, ..bursts },
    ] {
        assert_rejected(&with(rejected), &ConfigError::BurstLoss, "burst_loss: good_to_bad, bad_to_good and loss_bad");
    }
}

#[test]
fn codel_needs_a_target_within_its_interval() {
    let with = |target, interval| {
        let codel =
            CoDel { target: Duration::from_millis(target), interval: Duration::from_millis(interval), ecn: false };
        LinkConfig { discipline: Discipline::CoDel(codel), ..LinkConfig::default() }
    };
    assert_eq!(with(5, 5).validate(), Ok(()));
    for rejected in [with(0, 100), with(6, 5)] {
        assert_rejected(&rejected, &ConfigError::CoDel, "discipline: the target of CoDel");
    }
}

#[test]
fn every_change_of_a_schedule_is_validated() {
    let at = Duration::from_millis;
    let schedule = Schedule::once([(at(1), Change::Loss(Ratio::ONE)), (at(2), Change::Rate(Some(Rate::ZERO)))]);
    let config = LinkConfig { schedule: schedule.ok(), ..LinkConfig::default() };
    let inner = ConfigError::ZeroRate;
    let error = ConfigError::Scheduled { index: 1, error: Box::new(inner.clone()) };
    assert_rejected(&config, &error, "change 1 of the schedule: the rate");
    assert_eq!(std::error::Error::source(&error).map(ToString::to_string), Some(inner.to_string()));

    let changes = [(at(5), Change::Reorder(Ratio::ONE, at(1))), (at(9), Change::Rate(None))];
    let bounded = LinkConfig {
        rate: Some(Rate::from_mbps(1)),
        queue_delay: Some(at(30)),
        schedule: Schedule::repeating(at(10), changes).ok(),
        ..LinkConfig::default()
    };
    let error = ConfigError::Scheduled { index: 1, error: Box::new(ConfigError::QueueDelayWithoutRate) };
    assert_rejected(&bounded, &error, "change 1 of the schedule: queue_delay");
}

#[test]
fn a_queue_limit_in_time_follows_the_rate() {
    let config = LinkConfig {
        rate: Some(Rate::from_mbps(100)),
        queue_delay: Some(Duration::from_millis(30)),
        queue_bytes: 7,
        ..LinkConfig::default()
    };
    assert_eq!(config.queue_bytes_max(), 375_000);
    assert_eq!(LinkConfig { rate: Some(Rate::from_mbps(10)), ..config.clone() }.queue_bytes_max(), 37_500);
    // 1500 bytes in 10 ms.
    let traced = LinkConfig { rate: None, trace: Trace::from_millis([10]).ok(), ..config.clone() };
    assert_eq!(traced.queue_bytes_max(), 4_500);
    assert_eq!(LinkConfig { queue_delay: None, ..config }.queue_bytes_max(), 7);
}
