//! The costs of a host's tasks, from a profile of a machine (`docs/spec/profile.md`).
//!
//! A profile attributes all costs to packets with application data, at the sending and at the
//! receiving end, including the costs of acknowledgements. So simulated processors are charged for
//! packets with data, and pure acknowledgements are free.

use core::fmt;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use units::Duration;

/// The supported format and its version.
const FORMAT: (&str, u64) = ("litz-profile", 1);

/// Maximum plausible cost of a packet in nanoseconds: one second.
const NS_MAX: f64 = 1e9;

/// Maximum size of a profile, in bytes.
pub const PROFILE_BYTES_MAX: usize = 1 << 20;

/// A task of a host for a packet with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// The application and the library's calls.
    Application,
    /// The serial work of a connection in the direction of the data: planning or absorbing.
    Serial,
    /// Sealing or opening.
    Stage,
    /// The system call that sends or receives the packet.
    Call,
    /// The acknowledgements in the opposite direction: processed by the sender, sent by the
    /// receiver.
    Answer,
}

impl Task {
    /// All tasks.
    pub const ALL: [Self; 5] = [Self::Application, Self::Serial, Self::Stage, Self::Call, Self::Answer];

    /// Returns the name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Serial => "serial",
            Self::Stage => "stage",
            Self::Call => "call",
            Self::Answer => "answer",
        }
    }
}

/// An end of the data transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that sends data.
    Sending,
    /// The end that receives data.
    Receiving,
}

/// The costs at both ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    sending: [Curve; 5],
    receiving: [Curve; 5],
    /// The time to wake a sleeping thread, in nanoseconds. Passing a batch to a running thread
    /// costs nothing.
    pub wake_ns: f64,
    /// Warnings in the profile.
    pub warnings: Vec<String>,
}

/// Serialises pairs of datagram size and nanoseconds per packet for each end and task.
impl Serialize for Costs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            sending: BTreeMap<&'static str, &'a Curve>,
            receiving: BTreeMap<&'static str, &'a Curve>,
        }
        fn of(curves: &[Curve; 5]) -> BTreeMap<&'static str, &Curve> {
            Task::ALL.into_iter().map(Task::name).zip(curves).collect()
        }
        Shown { sending: of(&self.sending), receiving: of(&self.receiving) }.serialize(serializer)
    }
}

/// Nanoseconds per packet by datagram size: linear interpolation between the measured sizes, and
/// linear extrapolation from the last two.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Curve(Vec<(f64, f64)>);

/// Reason why a profile is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError(String);

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProfileError {}

#[derive(Deserialize)]
struct Profile {
    format: String,
    version: u64,
    memory: Table,
    // Older profiles have neither field.
    wake_ns: Option<f64>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
struct Table {
    sending: Side,
    receiving: Side,
}

#[derive(Deserialize)]
struct Side {
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    datagram_bytes: u32,
    ns: BTreeMap<String, f64>,
}

impl Costs {
    /// Parses the output of `litz profile --json`.
    ///
    /// # Errors
    /// Fails if the text is not a profile, or its costs are implausible: one too long, or all zero.
    pub fn from_profile(text: &str) -> Result<Self, ProfileError> {
        let failed = |message: String| ProfileError(message);
        if text.len() > PROFILE_BYTES_MAX {
            return Err(failed(format!("the profile is longer than {PROFILE_BYTES_MAX} bytes")));
        }
        let profile: Profile = serde_json::from_str(text).map_err(|error| failed(format!("not a profile: {error}")))?;
        if (profile.format.as_str(), profile.version) != FORMAT {
            let (format, version) = (profile.format, profile.version);
            return Err(failed(format!(
                "format: {format:?} version {version} is not {:?} version {}",
                FORMAT.0, FORMAT.1
            )));
        }
        let wake_ns = profile.wake_ns.unwrap_or(0.0);
        if !(0.0..=NS_MAX).contains(&wake_ns) {
            return Err(failed(format!("wake_ns: {wake_ns} ns is out of range")));
        }
        let mut costs = Self {
            sending: curves(End::Sending, &profile.memory.sending)?,
            receiving: curves(End::Receiving, &profile.memory.receiving)?,
            wake_ns,
            warnings: profile.warnings,
        };
        if profile.wake_ns.is_none() {
            costs.warnings.push("it has no cost of waking a thread, which is assumed to be zero".to_owned());
        }
        let mut points = profile.memory.sending.points.iter().chain(&profile.memory.receiving.points);
        if points.all(|point| costs.are_zero_at(point.datagram_bytes as usize)) {
            return Err(failed(
                "no packet takes any time at either end: take the profile again, with `litz profile --json`".to_owned(),
            ));
        }
        Ok(costs)
    }

    /// Returns whether a packet with a datagram of `bytes` bytes costs less than half a nanosecond
    /// at both ends. Over a link without rate and delay, such packets would be exchanged forever at
    /// one virtual time.
    pub fn are_zero_at(&self, bytes: usize) -> bool {
        [End::Sending, End::Receiving]
            .into_iter()
            .all(|end| Task::ALL.into_iter().all(|task| self.of(end, task, 1, bytes).is_zero()))
    }

    /// Returns the cost of `packets` datagrams of `bytes` bytes each.
    pub fn of(&self, end: End, task: Task, packets: usize, bytes: usize) -> Duration {
        let ns = self.packet_ns(end, task, bytes) * packets as f64;
        Duration::from_nanos(ns.round() as u64)
    }

    /// Returns the nanoseconds for a packet with a datagram of `bytes` bytes.
    pub fn packet_ns(&self, end: End, task: Task, bytes: usize) -> f64 {
        let curves = if end == End::Sending { &self.sending } else { &self.receiving };
        // Extrapolation may give any value.
        curves[task as usize].at(bytes as f64).min(NS_MAX)
    }
}

/// Returns the task to which a row of the profile belongs.
fn task_of(end: End, row: &str) -> Option<Task> {
    let stage = row.split_once('.').map_or(row, |(stage, _)| stage);
    Some(match (end, stage) {
        (_, "application") => Task::Application,
        (End::Sending, "seal") => Task::Stage,
        (End::Sending, "send_call" | "poll") => Task::Call,
        (End::Sending, "recv_call" | "route" | "open_absorb") => Task::Answer,
        (End::Receiving, "open_absorb") if row.ends_with(".absorb") => Task::Serial,
        (End::Receiving, "open_absorb") => Task::Stage,
        (End::Receiving, "recv_call" | "poll") => Task::Call,
        (End::Receiving, "plan" | "seal" | "report" | "send_call") => Task::Answer,
        (_, "serve" | "timers" | "hand_over" | "plan" | "report" | "route") => Task::Serial,
        // The format allows unknown rows; file access is not simulated.
        _ => return None,
    })
}

fn curves(end: End, side: &Side) -> Result<[Curve; 5], ProfileError> {
    if side.points.is_empty() {
        return Err(ProfileError("points: the list is empty".to_owned()));
    }
    let mut curves: [Curve; 5] = Default::default();
    for point in &side.points {
        let mut sums = [0.0; 5];
        for (row, ns) in &point.ns {
            if !ns.is_finite() || ns.abs() > NS_MAX {
                return Err(ProfileError(format!("{row}: {ns} ns per packet is out of range")));
            }
            if let Some(task) = task_of(end, row) {
                sums[task as usize] += ns;
            }
        }
        for (curve, ns) in curves.iter_mut().zip(sums) {
            let bytes = f64::from(point.datagram_bytes);
            if curve.0.last().is_some_and(|(last, _)| *last >= bytes) {
                return Err(ProfileError("points: sizes must ascend".to_owned()));
            }
            // A remainder may be slightly negative; the cost of a task is not.
            curve.0.push((bytes, ns.max(0.0)));
        }
    }
    Ok(curves)
}

impl Curve {
    fn at(&self, bytes: f64) -> f64 {
        let points = &self.0;
        let ns = match points[..] {
            [] => 0.0,
            [(_, ns)] => ns,
            _ => {
                let next = points.partition_point(|(at, _)| *at < bytes).clamp(1, points.len() - 1);
                let ((x0, y0), (x1, y1)) = (points[next - 1], points[next]);
                y0 + (y1 - y0) * (bytes - x0) / (x1 - x0)
            }
        };
        ns.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(sending: &str, receiving: &str) -> String {
        format!(
            "{{\"format\":\"litz-profile\",\"version\":1,\"more\":[],\"memory\":{{\"sending\":{{\"points\":{sending}}},\
             \"receiving\":{{\"points\":{receiving}}}}}}}"
        )
    }

    const ROWS: &str = "[{\"datagram_bytes\":1000,\"ns\":{\"plan\":10,\"serve\":5,\"seal.cipher\":100,\"send_call\":80,\
        \"open_absorb\":3,\"new.row\":9}},{\"datagram_bytes\":2000,\"ns\":{\"plan\":20,\"seal.cipher\":200,\"seal.rest\":-1}}]";

    #[test]
    fn rows_map_to_tasks_and_sizes_are_interpolated() {
        let costs = Costs::from_profile(&profile(ROWS, ROWS)).expect("a valid profile");
        let sending = |task, bytes| costs.packet_ns(End::Sending, task, bytes);
        assert_eq!(
            (sending(Task::Serial, 1000), sending(Task::Serial, 1500), sending(Task::Serial, 2000)),
            (15.0, 17.5, 20.0)
        );
        assert_eq!(
            (sending(Task::Stage, 1000), sending(Task::Call, 1000), sending(Task::Answer, 1000)),
            (100.0, 80.0, 3.0)
        );
        // Extrapolated from the last two sizes, and never below zero.
        assert_eq!((sending(Task::Serial, 3000), sending(Task::Call, 3000)), (25.0, 0.0));
        // The receiver plans and seals acknowledgements.
        assert_eq!(costs.packet_ns(End::Receiving, Task::Answer, 1000), 190.0);
        assert_eq!(costs.of(End::Sending, Task::Stage, 44, 1500), Duration::from_nanos((149.5 * 44.0) as u64));
    }

    #[test]
    fn invalid_profiles_are_refused_with_the_key() {
        let error = |text: &str| Costs::from_profile(text).expect_err("it is none").to_string();
        assert!(error("{}").contains("format"));
        assert!(error(&profile("[]", ROWS)).contains("points"));
        assert!(
            error(&profile(ROWS, ROWS).replace("\"version\":1", "\"wake_ns\":-1,\"version\":1")).contains("wake_ns")
        );
        assert!(error(&profile(ROWS, ROWS).replace("\"version\":1", "\"version\":2")).contains("version 2"));
        assert!(error(&profile(&ROWS.replace("\"plan\":20", "\"plan\":1e12"), ROWS)).contains("plan"));
        assert!(error(&profile(&ROWS.replace("2000", "1000"), ROWS)).contains("ascend"));
    }

    #[test]
    fn a_profile_without_costs_is_refused_with_advice() {
        let free = "[{\"datagram_bytes\":1472,\"ns\":{\"plan\":0,\"seal.rest\":-3,\"new.row\":9,\"recv_call\":0.4}}]";
        let error = Costs::from_profile(&profile(free, free)).expect_err("nothing would be busy").to_string();
        assert!(error.contains("take the profile again"), "{error}");
        // Costs at one end suffice.
        for (sending, receiving) in [(ROWS, free), (free, ROWS)] {
            assert!(Costs::from_profile(&profile(sending, receiving)).is_ok());
        }
    }

    #[test]
    fn extrapolated_costs_are_bounded() {
        let rising = "[{\"datagram_bytes\":1000,\"ns\":{\"plan\":0}},{\"datagram_bytes\":1001,\"ns\":{\"plan\":1e9}}]";
        let costs = Costs::from_profile(&profile(rising, rising)).expect("a valid profile");
        assert_eq!(costs.packet_ns(End::Sending, Task::Serial, 65_000), NS_MAX);
        assert_eq!(costs.of(End::Sending, Task::Serial, 64, 65_000), Duration::from_secs(64));
    }

    #[test]
    fn extrapolated_costs_may_reach_zero() {
        let falling =
            "[{\"datagram_bytes\":1000,\"ns\":{\"plan\":100}},{\"datagram_bytes\":2000,\"ns\":{\"plan\":50}}]";
        let costs = Costs::from_profile(&profile(falling, falling)).expect("a valid profile");
        assert_eq!([1000, 2900, 3000, 9000].map(|bytes| costs.are_zero_at(bytes)), [false, false, true, true]);
    }
}
