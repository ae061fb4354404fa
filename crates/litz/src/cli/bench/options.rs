//! The arguments of `litz bench`, and what they mean together.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use litz::{PATHS_MAX, PROCESSORS_MAX, Placement};
use quic::config::DATAGRAM_SIZE_MAX;
use units::Duration;

use crate::speedup::{self, Cipher, Seat, Settings, Side};

/// Of IPv4 and UDP, in bytes.
const HEADERS_LEN: usize = 28;

/// RFC 9000, section 14: no path carries less.
const DATAGRAM_SIZE_MIN: usize = 1200;

/// Longer runs say nothing more.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// Shorter ones are all beginning and end.
const TIME_MIN: Duration = Duration::from_millis(10);

/// One sends, one receives.
const SPLIT_PROCESSORS: usize = 2;

/// Document 000: runs for each point, warm-up, time and confidence.
const FULL: (u8, Duration, Duration) = (10, Duration::from_secs(30), Duration::from_secs(30));

/// With `--quick`.
const QUICK: (u8, Duration, Duration) = (5, Duration::from_millis(300), Duration::from_secs(1));

/// For the end of the help text.
pub(crate) const HELP: &str = "\
All processors work for one end of one connection. The other end is a script inside the socket, in memory: real keys and
real packets, and next to no work. Stop other programs first.

Speedup is throughput by that of packet(1), or path(1), in the same run. The bound is what the costs of a packet with one
processor allow: neither the driver nor the application can be in two places. `thread` beside it is the engine without stages:
it should agree with packet(1) and path(1).

--side duplex sends and receives bulk at once, the same amount either way, and counts both. It is what --placement split is
measured with: speedup is then by `thread`, and the bound is the time of both halves by that of the longer one.

Exit status:
  0    the result is printed
  2    an error: bad arguments, too few processors, no folder
  130  interrupted";

#[derive(Args, Debug)]
pub(crate) struct BenchOptions {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// How much faster more processors make one connection: throughput and speedup with confidence intervals, and the bound
    #[command(after_help = HELP)]
    Speedup(SpeedupOptions),
}

#[derive(Args, Debug)]
pub(crate) struct SpeedupOptions {
    /// The side to measure: the script is the other one [default: both, one after the other; with --placement split duplex]
    #[arg(long, value_enum)]
    side: Option<Sides>,

    /// What is given more processors
    #[arg(long, value_enum, default_value = "packet")]
    placement: Kind,

    /// Paths of the connection, each with a socket, with --placement path [default: as many as processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(PATHS_MAX)))]
    paths: Option<u16>,

    /// How many processors: a list such as 1,2,4 or a range such as 1..8; one is always among them [default: 1..all; with
    /// --placement split 1,2]
    #[arg(long, value_name = "LIST")]
    processors: Option<Processors>,

    /// Placements of one processor to measure beside packet(1) or path(1): thread, inline (which cannot write and read at once)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "thread")]
    beside: Vec<Placement>,

    /// Where the application stays: with the driver, on the last processor in use, or where the system puts it; its thread that
    /// writes with the driver and the one that reads on the last [default: last; with --side duplex apart]
    #[arg(long, value_enum, value_name = "WHERE")]
    application: Option<Application>,

    /// What seals the packets: aes128, aes256 or chacha20
    #[arg(long, value_name = "NAME", default_value = "aes128")]
    cipher: Cipher,

    /// The MTU of the path that the datagrams would fit, in bytes, for IPv4: 1500 makes datagrams of 1472
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: usize,

    /// Runs for each number of processors [default: 10; with --quick 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    runs: Option<u8>,

    /// Before each run: a time such as 300ms, or seconds [default: 30; with --quick 300ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    warmup: Option<Duration>,

    /// Of each run: a time such as 300ms, or seconds [default: 30; with --quick 1]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    time: Option<Duration>,

    /// Of the intervals, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0)]
    confidence: f64,

    /// Short runs: a first look
    #[arg(long)]
    quick: bool,

    /// The result as one JSON object, in the format of docs/spec/speedup.md
    #[arg(long)]
    pub(super) json: bool,

    /// Keep the result in this folder too, as speedup-TIME.json; must exist
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,

    /// Draw speedup over processors into this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Sides {
    /// It sends
    Send,
    /// It receives
    Receive,
    /// One after the other
    Both,
    /// It sends and receives at once
    Duplex,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Application {
    First,
    Last,
    Apart,
    Free,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// packet(n): the batches of all connections are shared by n processors
    Packet,
    /// path(n): the paths of one connection are shared by n processors
    Path,
    /// split: what is sent has one processor, what is received another
    Split,
}

/// Numbers of processors, ascending, one among them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Processors(Vec<usize>);

impl FromStr for Processors {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let number = |word: &str| {
            let number = word.trim().parse().ok().filter(|number| (1..=PROCESSORS_MAX).contains(number));
            number.ok_or_else(|| format!("{word:?} is no number of processors from 1 to {PROCESSORS_MAX}"))
        };
        let mut numbers = match words.split_once("..") {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(format!("{first}..{last} is empty"));
                }
                (first..=last).collect()
            }
            None => words.split(',').map(number).collect::<Result<Vec<_>, _>>()?,
        };
        // What the others are compared with.
        numbers.push(1);
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Self(numbers))
    }
}

/// A time with a unit, or seconds.
fn parse_time(words: &str) -> Result<Duration, String> {
    if let Ok(seconds) = words.trim().parse::<f64>() {
        return Some(seconds)
            .filter(|seconds| (0.0..=TIME_MAX.as_secs_f64()).contains(seconds))
            .map(|seconds| Duration::from_nanos((seconds * 1e9) as u64))
            .ok_or_else(|| format!("{words} seconds are not from 0 to {TIME_MAX}"));
    }
    Duration::from_str(words).map_err(|error| error.to_string())
}

impl SpeedupOptions {
    /// What to measure, on processors of these numbers.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn settings(&self, cores: &[usize]) -> Result<Settings, String> {
        // Where the system does not tell their numbers, threads go where it puts them.
        let count = if cores.is_empty() { net::processors::count() } else { cores.len() };
        let processors = match &self.processors {
            Some(Processors(processors)) => processors.clone(),
            None if self.placement == Kind::Split => vec![1, SPLIT_PROCESSORS],
            None => (1..=count.min(PROCESSORS_MAX)).collect(),
        };
        if let Some(most) = processors.iter().max().filter(|most| **most > count) {
            return Err(format!(
                "this process may use {count} processors, not {most}: give --processors 1..{count}, or allow it more"
            ));
        }
        if let Some(placement) = self.beside.iter().find(|placement| placement.thread_count() > 1) {
            return Err(format!("--beside is for placements of one processor, not {placement}"));
        }
        let (kind, paths) = self.kind(&processors)?;
        let sides = self.sides()?;
        let is_duplex = sides == [Side::Duplex];
        let size = self.mtu.saturating_sub(HEADERS_LEN);
        if !(DATAGRAM_SIZE_MIN..=DATAGRAM_SIZE_MAX).contains(&size) {
            let (least, most) = (DATAGRAM_SIZE_MIN + HEADERS_LEN, DATAGRAM_SIZE_MAX + HEADERS_LEN);
            return Err(format!("--mtu takes {least} to {most} bytes, not {}", self.mtu));
        }
        let (runs, warm_up, time) = if self.quick { QUICK } else { FULL };
        let (warm_up, time) = (self.warmup.unwrap_or(warm_up), self.time.unwrap_or(time));
        if !(TIME_MIN..=TIME_MAX).contains(&time) || warm_up > TIME_MAX {
            return Err(format!("--time takes {TIME_MIN} to {TIME_MAX}, --warmup up to {TIME_MAX}"));
        }
        if !(50.0..=99.9).contains(&self.confidence) {
            return Err(format!("--confidence takes 50 to 99.9 percent, not {}", self.confidence));
        }
        Ok(Settings {
            sides,
            kind,
            paths,
            processors,
            beside: self.beside.iter().copied().filter(|placement| *placement != kind.placement(1)).collect(),
            cores: cores.to_vec(),
            seat: match self.application {
                Some(Application::First) => Seat::First,
                Some(Application::Last) => Seat::Last,
                Some(Application::Apart) => Seat::Apart,
                Some(Application::Free) => Seat::Free,
                None if is_duplex => Seat::Apart,
                None => Seat::Last,
            },
            cipher: self.cipher,
            datagram_size: size,
            runs: self.runs.unwrap_or(runs).into(),
            warm_up,
            time,
            confidence: self.confidence / 100.0,
        })
    }

    /// What is measured, one after the other.
    ///
    /// # Errors
    /// In words for the user.
    fn sides(&self) -> Result<Vec<Side>, String> {
        let sides = match (self.side, self.placement) {
            (Some(Sides::Duplex), Kind::Path) => {
                return Err("--side duplex has one path: give --placement packet or split".to_owned());
            }
            (Some(Sides::Send | Sides::Receive | Sides::Both), Kind::Split) => {
                return Err("--placement split is for both ways at once: give --side duplex, or no --side".to_owned());
            }
            (Some(Sides::Duplex), _) | (None, Kind::Split) => vec![Side::Duplex],
            (Some(Sides::Send), _) => vec![Side::Send],
            (Some(Sides::Receive), _) => vec![Side::Receive],
            (Some(Sides::Both) | None, _) => vec![Side::Send, Side::Receive],
        };
        if sides == [Side::Duplex] && self.beside.contains(&Placement::Inline) {
            return Err("--beside inline cannot write and read at once".to_owned());
        }
        if self.application == Some(Application::Apart) && sides != [Side::Duplex] {
            return Err("--application apart is for --side duplex: there is one thread otherwise".to_owned());
        }
        Ok(sides)
    }

    /// What is shared by these numbers of processors, and how many paths there are.
    ///
    /// # Errors
    /// In words for the user.
    fn kind(&self, processors: &[usize]) -> Result<(speedup::Kind, u16), String> {
        let most = processors.iter().copied().max().unwrap_or(1);
        match (self.placement, self.paths) {
            (Kind::Packet, None) => Ok((speedup::Kind::Packet, 1)),
            (Kind::Packet | Kind::Split, Some(_)) => Err("--paths is for --placement path".to_owned()),
            (Kind::Split, None) if most > SPLIT_PROCESSORS => {
                Err(format!("--placement split has {SPLIT_PROCESSORS} processors, not {most}: one for each half"))
            }
            (Kind::Split, None) => Ok((speedup::Kind::Split, 1)),
            (Kind::Path, paths) => {
                let paths = paths.unwrap_or(u16::try_from(most.min(PATHS_MAX as usize)).unwrap_or(u16::MAX));
                // One more than paths leaves the driver without a path of its own; those beyond are never used.
                if most > usize::from(paths) + 1 {
                    return Err(format!("{paths} paths keep {} processors busy at most, not {most}", paths + 1));
                }
                if paths > 1 && self.beside.contains(&Placement::Inline) {
                    return Err("--beside inline has one path: nothing waits for several streams there".to_owned());
                }
                Ok((speedup::Kind::Path, paths))
            }
        }
    }

    /// Whether what was asked for can be written.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn check_files(&self) -> Result<(), String> {
        if let Some(folder) = self.out.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(format!("--out needs a folder that exists: {}", folder.display()));
        }
        let folder = self.plot.as_ref().and_then(|file| file.parent()).filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(format!("--plot needs a folder that exists: {}", folder.display()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_lists_or_ranges_and_one_is_always_there() {
        let parse = |words: &str| words.parse::<Processors>().map(|Processors(numbers)| numbers);
        assert_eq!(parse("1..4"), Ok(vec![1, 2, 3, 4]));
        assert_eq!(parse("8, 2"), Ok(vec![1, 2, 8]));
        assert_eq!(parse("3..3"), Ok(vec![1, 3]));
        for words in ["", "0", "1..65", "4..2", "1..", "two", "1,,2", "-1"] {
            assert!(parse(words).is_err(), "{words}");
        }
    }

    #[test]
    fn times_are_seconds_or_have_a_unit() {
        assert_eq!(parse_time("0.1"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_time("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(parse_time("0"), Ok(Duration::ZERO));
        for words in ["-1", "nan", "1e9", "soon", ""] {
            assert!(parse_time(words).is_err(), "{words}");
        }
    }
}
