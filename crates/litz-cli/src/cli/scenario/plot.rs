//! `--plot`: the rate of each part of the workload and of each link over time, with the capacity of the
//! links and the times of their faults.

use measure::Estimate;
use measure::plot::{Band, Curve, Panel, Stroke};
use scenario::capacity::capacity_bytes;
use scenario::model::Scenario;
use scenario::outcome::Outcome;
use scenario::timeline::{BIN, Timeline};
use units::{Duration, Instant};

/// Number of values of a curve: more cannot be told apart in a panel.
const POINTS: u64 = 150;

/// Largest number of marked faults: more would hide the curves.
const BANDS_MAX: usize = 200;

/// The deliveries of a run over time.
pub(super) fn panel(scenario: &Scenario, outcome: &Outcome) -> Panel {
    let curve = |name: String, stroke, delivered: &Timeline| Curve {
        has_marks: false,
        stroke,
        ..Curve::measured(name, rates(delivered, outcome.ended_at))
    };
    let parts = scenario.parts.iter().zip(&outcome.parts);
    let parts = parts.map(|(part, measured)| curve(part.name.clone(), Stroke::Solid, &measured.delivered.timeline));
    let links = outcome.link_outcomes.iter();
    let links =
        links.map(|link| curve(format!("link {}", scenario.links[link.link].name), Stroke::Thin, &link.delivered));
    let bands = bands(scenario, outcome);
    let faults = if bands.is_empty() { "" } else { "; shaded: faults" };
    Panel {
        title: format!("{}: rate over time", scenario.name),
        subtitle: format!("seed {}, paths {}{faults}", outcome.seed, outcome.path_names(scenario)),
        x_label: "time, s".to_owned(),
        y_label: "payload delivered, MB/s".to_owned(),
        curves: parts.chain(links).chain(capacity(scenario, outcome)).collect(),
        bands,
        is_never_negative: true,
        ..Panel::default()
    }
}

/// The rate in each of equal intervals until `end`, by the middle of the interval.
fn rates(delivered: &Timeline, end: Instant) -> Vec<(f64, Estimate)> {
    let points = intervals(end).map(|(from, until)| {
        let bytes = delivered.bytes_by(until).saturating_sub(delivered.bytes_by(from));
        let (x, mean) = point(from, until, bytes);
        (x, Estimate { mean, plus_minus: None })
    });
    points.collect()
}

/// Equal intervals until `end`.
fn intervals(end: Instant) -> impl Iterator<Item = (Instant, Instant)> {
    let span = end.since_start().as_nanos();
    // Deliveries are recorded in bins: within one the rate is not known.
    let step = BIN.as_nanos() * span.div_ceil(POINTS * BIN.as_nanos()).max(1);
    let at = Instant::from_nanos;
    (0..span.div_ceil(step)).map(move |index| (at(index * step), at(((index + 1) * step).min(span))))
}

/// The middle of an interval, in seconds, and the rate in it, in MB/s.
fn point(from: Instant, until: Instant, bytes: u64) -> (f64, f64) {
    let (begin, end) = (from.since_start().as_secs_f64(), until.since_start().as_secs_f64());
    (f64::midpoint(begin, end), bytes as f64 / until.saturating_since(from).as_secs_f64() / 1e6)
}

/// Capacity of the links; none if it is unbounded.
fn capacity(scenario: &Scenario, outcome: &Outcome) -> Option<Curve> {
    let points = intervals(outcome.ended_at).map(|(from, until)| {
        let bytes = capacity_bytes(scenario, &outcome.paths, from.since_start(), until.since_start())?;
        Some(point(from, until, bytes))
    });
    Some(Curve::reference("capacity", points.collect::<Option<_>>()?, Stroke::Dashed, "#777777"))
}

/// The faults of the links under the paths, each time that they occurred.
fn bands(scenario: &Scenario, outcome: &Outcome) -> Vec<Band> {
    let used = |link| outcome.paths.iter().any(|&path| scenario.paths[path].link == link);
    let end = outcome.ended_at.since_start();
    let times = scenario.faults.iter().filter(|fault| used(fault.link)).flat_map(|fault| {
        let length = fault.until.map_or(Duration::ZERO, |until| until.saturating_sub(fault.at));
        let begins = std::iter::successors(Some(fault.at), |at| fault.every.map(|every| *at + every));
        begins.take_while(move |at| *at < end).map(move |at| Band {
            name: scenario.links[fault.link].name.clone(),
            range: (at.as_secs_f64(), (at + length).as_secs_f64()),
        })
    });
    times.take(BANDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use scenario::outcome::{LinkOutcome, PartOutcome};

    use super::*;

    #[test]
    fn the_links_their_capacity_and_their_faults_are_in_the_plot() {
        let text = "version = 1\n[scenario]\nname = 'x'\nabout = 'x'\nduration = '4s'\n\
                    [[link]]\nname = 'a'\nrate = '80Mb/s'\n[[link]]\nname = 'b'\nrate = '8Mb/s'\n\
                    [[fault]]\nlink = 'a'\nat = '1s'\nuntil = '2s'\nevery = '2s'\nstate = 'silent'\n\
                    [[workload]]\nkind = 'stream'\n";
        let scenario = scenario::parse::parse("x.toml", text, &|_| Err(String::new())).unwrap();
        // Each bin holds the bytes of ten milliseconds.
        let link = |link, bytes: u64| {
            let cumulative_bytes = (1..=400).map(|bin| bin * bytes).collect();
            LinkOutcome {
                link,
                stats: Default::default(),
                delivered: Timeline { bytes: 400 * bytes, cumulative_bytes },
            }
        };
        let mut outcome = Outcome {
            scenario: scenario.name.clone(),
            world: "memory",
            seed: 1,
            paths: vec![0, 1],
            connected_at: None,
            ended_at: Instant::from_nanos(4_000_000_000),
            failure: None,
            parts: vec![PartOutcome::default()],
            path_outcomes: Vec::new(),
            link_outcomes: vec![link(0, 40), link(1, 1)],
            fault_outcomes: Vec::new(),
            foreign_streams: 0,
            components: Vec::new(),
            events_digest: None,
            notes: Vec::new(),
        };
        let panel = panel(&scenario, &outcome);
        let ranges: Vec<_> = panel.bands.iter().map(|band| (band.name.as_str(), band.range)).collect();
        assert_eq!(ranges, [("a", (1.0, 2.0)), ("a", (3.0, 4.0))]);
        let capacity = panel.curves.last().unwrap();
        let names: Vec<_> = panel.curves.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names, ["stream", "link a", "link b", "capacity"]);
        for (curve, bytes) in [(1, 40.0), (2, 1.0)] {
            let points = &panel.curves[curve].points;
            let is_near = |(_, rate): &(f64, Estimate)| (rate.mean - bytes * 100.0 / 1e6).abs() < bytes / 1e5;
            assert!(points.len() == 134 && points.iter().all(is_near), "{curve}: {points:?}");
        }
        let share = scenario::model::PAYLOAD_SHARE;
        // In the interval in which a fault begins or ends, the capacity is between the two.
        for (at, rate) in capacity.points.iter().filter(|(at, _)| (at - at.round()).abs() > 0.05) {
            let up = if (*at as u64).is_multiple_of(2) { 11.0 } else { 1.0 };
            let expected = up * share.0 as f64 / share.1 as f64;
            assert!((rate.mean - expected).abs() < expected / 100.0, "{at} s: {rate:?}");
        }
        // Without the link there is none of its faults.
        outcome.paths = vec![1];
        assert_eq!(bands(&scenario, &outcome), []);
        let svg = measure::plot::svg(&[panel]);
        for part in ["<title>a</title></rect>", ">link a</text>", ">link b</text>", "<polyline class=\"link b\""] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn the_rate_of_an_interval_is_what_was_delivered_in_it() {
        // 1 MB in the first second, nothing in the second one, 2 MB in the third one.
        let cumulative_bytes: Vec<u64> =
            (1..=300).map(|bin: u64| bin.min(100) * 10_000 + bin.saturating_sub(200) * 20_000).collect();
        let delivered = Timeline { bytes: 3_000_000, cumulative_bytes };
        let points = rates(&delivered, Instant::from_nanos(3_000_000_000));
        assert_eq!(points.len(), 150);
        for (at, rate) in points {
            let expected = [1.0, 0.0, 2.0][at as usize];
            assert!((rate.mean - expected).abs() < 1e-9, "{at} s: {rate:?}");
        }
        assert_eq!(rates(&delivered, Instant::ZERO), []);
    }
}
