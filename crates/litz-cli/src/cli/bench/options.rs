//! The arguments of `litz bench`, and checks of their combinations.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use litz::tcp::Stack;
use litz::{PATHS_MAX, PROCESSORS_MAX, Placement};
use quic::config::DATAGRAM_SIZE_MAX;
use units::Duration;

use crate::cli::heading;
use crate::speedup::{self, AppCore, Cipher, MeasuredStack, Settings, Side};

/// Size of the IPv4 and UDP headers.
const HEADERS_LEN: usize = 28;

/// Every path carries datagrams of this size (RFC 9000, section 14).
const DATAGRAM_SIZE_MIN: usize = 1200;

/// Longer runs add no information.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// Shorter runs consist mostly of their start and end.
const TIME_MIN: Duration = Duration::from_millis(10);

/// One processor sends, one receives.
const SPLIT_PROCESSORS: usize = 2;

/// On each side one for TCP, one for IP; or one for both.
const PIPELINE_PROCESSORS: usize = 4;

/// As in document 000: number of runs at each point, warm-up, and duration of a run.
const FULL: (u8, Duration, Duration) = (10, Duration::from_secs(30), Duration::from_secs(30));

/// The same with `--quick`.
const QUICK: (u8, Duration, Duration) = (5, Duration::from_millis(300), Duration::from_secs(1));

/// Document 000: packets of 4 KB.
const STACK_PAYLOAD: u16 = 4096;

/// Bytes of the application in a packet of a stack: with all headers, up to an MTU of ATM.
const STACK_PAYLOADS: std::ops::RangeInclusive<i64> = 512..=8960;

/// The end of the help text.
pub(crate) const HELP: &str = "\
All processors work for one end of one connection. The other end is a scripted peer inside the socket, in \
memory: it uses real keys and real packets and needs almost no CPU time. Stop other programs first.

Speedup is throughput relative to packet(1), or path(1), in the same run. The bound follows from the cost of \
a packet with one processor: the driver and the application each use at most one processor. `thread`, \
measured for comparison, is the engine without worker threads; it should agree with packet(1) and path(1).

--stack measures one connection of TCP/IP with security layers, as in Nahum et al. 1996. First every placement \
sends a mebibyte in lock-step, of which every digest and record is verified: the stream must be the same. The \
scripted peer then reads headers only, or sends packets that were sealed in advance.

--side duplex sends and receives the same amount of bulk data at once and counts both directions. It is the \
only side for --placement split and pipeline: speedup is then relative to `thread`, and the bound is the time of both \
halves divided by the time of the longer half. A pipeline of four needs --stack; with two processors, each \
side has one.

Exit status:
  0    the result was printed
  2    an error: bad arguments, too few processors, an unusable folder
  130  interrupted";

#[derive(Args, Debug)]
pub(crate) struct BenchOptions {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Measure how much faster more processors make one connection: throughput and speedup with
    /// confidence intervals, and the bound
    #[command(after_help = HELP)]
    Speedup(SpeedupOptions),
}

#[derive(Args, Debug)]
pub(crate) struct SpeedupOptions {
    /// The side to measure; the scripted peer is the other side [default: both, one after the
    /// other; duplex with --placement split and pipeline]
    #[arg(long, value_enum)]
    side: Option<Sides>,

    /// Division of the work among the processors
    #[arg(long, value_enum, default_value = "packet")]
    placement: Kind,

    /// With --placement path: number of paths of the connection, each with a socket [default: the
    /// number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(PATHS_MAX)))]
    paths: Option<u16>,

    /// Numbers of processors to measure with [default: 1 to all; 1,2 with --placement split; 1,2
    /// or 1,4 with pipeline]
    ///
    /// A list such as 1,2,4 or a range such as 1..8. One processor is always included.
    #[arg(long, value_name = "LIST", help_heading = heading::MACHINE)]
    processors: Option<Processors>,

    /// Placements on one processor to compare with packet(1) or path(1): thread or inline; inline
    /// cannot write and read at once
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "thread")]
    beside: Vec<Placement>,

    /// Processor of the application [default: last; apart with --side duplex]
    #[arg(long, value_enum, value_name = "WHERE", help_heading = heading::MACHINE)]
    application: Option<Application>,

    /// Measure a stack of TCP/IP instead of QUIC: CIPHER/tcp/DIGEST/ip, such as des/tcp/md5/ip
    ///
    /// CIPHER is des, 3des, aes128 or chacha20, DIGEST md5 or blake3; either may be left out. The packets
    /// stay in memory.
    #[arg(long, value_name = "STACK", conflicts_with_all = ["cipher", "mtu", "paths"])]
    stack: Option<Stack>,

    /// Bytes of the application in a packet of --stack [default: 4096]
    #[arg(long, value_name = "BYTES", requires = "stack", value_parser = clap::value_parser!(u16).range(STACK_PAYLOADS))]
    packet: Option<u16>,

    /// Allow des, 3des and md5, which protect nothing today
    #[arg(long)]
    papers: bool,

    /// Cipher: aes128, aes256 or chacha20
    #[arg(long, value_name = "NAME", default_value = "aes128")]
    cipher: Cipher,

    /// Path MTU for IPv4, in bytes: 1500 makes datagrams of 1472 bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: usize,

    /// Number of runs for each number of processors [default: 10; with --quick 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100), help_heading = heading::MEASURED)]
    runs: Option<u8>,

    /// Warm-up before each run, such as 300ms, or a number of seconds [default: 30; with --quick
    /// 300ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = heading::MEASURED)]
    warmup: Option<Duration>,

    /// Duration of each run, such as 300ms, or a number of seconds [default: 30; with --quick 1]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = heading::MEASURED)]
    time: Option<Duration>,

    /// Confidence level of the intervals, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0, help_heading = heading::MEASURED)]
    confidence: f64,

    /// Use short runs, for a first look
    #[arg(long, help_heading = heading::MEASURED)]
    quick: bool,

    /// Print the result as one JSON object, in the format of docs/spec/speedup.md
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(super) json: bool,

    /// Also write the result into this folder, as speedup-TIME.json; must exist
    #[arg(long, value_name = "DIR", help_heading = heading::OUTPUT)]
    pub(super) out: Option<PathBuf>,

    /// Write a plot of speedup over processors to this file, as SVG
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT)]
    pub(super) plot: Option<PathBuf>,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Sides {
    /// The measured side sends
    Send,
    /// The measured side receives
    Receive,
    /// Measure sending, then receiving
    Both,
    /// The measured side sends and receives at once
    Duplex,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Application {
    /// The driver's processor
    First,
    /// The last processor in use
    Last,
    /// The driver's processor for the writing thread, the last one in use for the reading thread
    #[value(name = "apart")]
    Separate,
    /// Any processor: the system decides
    Free,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// packet(n): n processors share the packet batches
    Packet,
    /// path(n): n processors share the paths of one connection
    Path,
    /// split: one processor sends, another receives
    Split,
    /// pipeline: as split, with TCP and IP apart on each side
    Pipeline,
}

impl Kind {
    /// The connection is divided into halves.
    fn has_halves(self) -> bool {
        matches!(self, Self::Split | Self::Pipeline)
    }
}

/// Numbers of processors in ascending order, including one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Processors(Vec<usize>);

impl FromStr for Processors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |word: &str| {
            let number = word.trim().parse().ok().filter(|number| (1..=PROCESSORS_MAX).contains(number));
            number.ok_or_else(|| format!("{word:?} is not a number of processors from 1 to {PROCESSORS_MAX}"))
        };
        let mut numbers = match text.split_once("..") {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(format!("the range {first}..{last} is empty"));
                }
                (first..=last).collect()
            }
            None => text.split(',').map(number).collect::<Result<Vec<_>, _>>()?,
        };
        // The baseline of the comparison.
        numbers.push(1);
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Self(numbers))
    }
}

/// Parses a time with a unit, or a number of seconds.
fn parse_time(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.trim().parse::<f64>() {
        return Some(seconds)
            .filter(|seconds| (0.0..=TIME_MAX.as_secs_f64()).contains(seconds))
            .map(|seconds| Duration::from_nanos((seconds * 1e9) as u64))
            .ok_or_else(|| format!("{text} seconds is not from 0 to {TIME_MAX}"));
    }
    Duration::from_str(text).map_err(|error| error.to_string())
}

impl SpeedupOptions {
    /// Checks the arguments and returns what to measure, on these processors.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn settings(&self, cores: &[usize]) -> Result<Settings, String> {
        // If the system does not report processor numbers, threads are not pinned.
        let count = if cores.is_empty() { net::processors::count() } else { cores.len() };
        let processors = match &self.processors {
            Some(Processors(processors)) => processors.clone(),
            None if self.placement == Kind::Pipeline && count >= PIPELINE_PROCESSORS => vec![1, PIPELINE_PROCESSORS],
            None if self.placement.has_halves() => vec![1, SPLIT_PROCESSORS],
            None => (1..=count.min(PROCESSORS_MAX)).collect(),
        };
        if let Some(most) = processors.iter().max().filter(|most| **most > count) {
            return Err(format!(
                "this process may use {count} processors, not {most}: use --processors \
                     1..{count}, or allow it more processors"
            ));
        }
        if let Some(placement) = self.beside.iter().find(|placement| placement.thread_count() > 1) {
            return Err(format!("--beside takes placements on one processor, not {placement}"));
        }
        let (kind, paths) = self.kind(&processors)?;
        let stack = self.stack(kind)?;
        let sides = self.sides()?;
        let is_duplex = sides == [Side::Duplex];
        let size = self.mtu.saturating_sub(HEADERS_LEN);
        if !(DATAGRAM_SIZE_MIN..=DATAGRAM_SIZE_MAX).contains(&size) {
            let (least, most) = (DATAGRAM_SIZE_MIN + HEADERS_LEN, DATAGRAM_SIZE_MAX + HEADERS_LEN);
            return Err(format!("--mtu must be from {least} to {most} bytes, not {}", self.mtu));
        }
        let (runs, warm_up, time) = if self.quick { QUICK } else { FULL };
        let (warm_up, time) = (self.warmup.unwrap_or(warm_up), self.time.unwrap_or(time));
        if !(TIME_MIN..=TIME_MAX).contains(&time) || warm_up > TIME_MAX {
            return Err(format!("--time must be from {TIME_MIN} to {TIME_MAX}, --warmup at most {TIME_MAX}"));
        }
        if !(50.0..=99.9).contains(&self.confidence) {
            return Err(format!("--confidence must be from 50 to 99.9 percent, not {}", self.confidence));
        }
        Ok(Settings {
            sides,
            stack,
            kind,
            paths,
            processors,
            beside: self.beside.iter().copied().filter(|placement| *placement != kind.placement(1)).collect(),
            cores: cores.to_vec(),
            app_core: match self.application {
                Some(Application::First) => AppCore::First,
                Some(Application::Last) => AppCore::Last,
                Some(Application::Separate) => AppCore::Separate,
                Some(Application::Free) => AppCore::Free,
                None if is_duplex => AppCore::Separate,
                None => AppCore::Last,
            },
            cipher: self.cipher,
            datagram_size: size,
            runs: self.runs.unwrap_or(runs).into(),
            warm_up,
            time,
            confidence: self.confidence / 100.0,
        })
    }

    /// The stack to measure, if it is not QUIC.
    ///
    /// # Errors
    /// A message for the user.
    fn stack(&self, kind: speedup::Kind) -> Result<Option<MeasuredStack>, String> {
        let Some(stack) = self.stack else {
            return match kind {
                speedup::Kind::Pipeline => Err("--placement pipeline is for TCP/IP: add --stack tcp/ip".to_owned()),
                _ => Ok(None),
            };
        };
        if stack.is_historical() && !self.papers {
            return Err(format!(
                "{stack} protects nothing today and exists for comparisons with papers: add --papers to measure it"
            ));
        }
        if kind == speedup::Kind::Path {
            return Err("--stack has one path: use --placement packet or split".to_owned());
        }
        if self.placement.has_halves() && stack.cipher.is_some() {
            return Err(format!(
                "{stack} cannot be split: records are opened by the driver; use --placement packet, or a stack \
                 without a cipher"
            ));
        }
        Ok(Some(MeasuredStack { stack, payload: self.packet.unwrap_or(STACK_PAYLOAD).into() }))
    }

    /// The sides to measure, in order.
    ///
    /// # Errors
    /// A message for the user.
    fn sides(&self) -> Result<Vec<Side>, String> {
        let sides = match (self.side, self.placement) {
            (Some(Sides::Duplex), Kind::Path) => {
                return Err("--side duplex has one path: use --placement packet or split".to_owned());
            }
            (Some(Sides::Send | Sides::Receive | Sides::Both), Kind::Split | Kind::Pipeline) => {
                return Err("--placement split and pipeline need both directions at once: use --side duplex, or omit \
                     --side"
                    .to_owned());
            }
            (Some(Sides::Duplex), _) | (None, Kind::Split | Kind::Pipeline) => vec![Side::Duplex],
            (Some(Sides::Send), _) => vec![Side::Send],
            (Some(Sides::Receive), _) => vec![Side::Receive],
            (Some(Sides::Both) | None, _) => vec![Side::Send, Side::Receive],
        };
        if sides == [Side::Duplex] && self.beside.contains(&Placement::Inline) {
            return Err("--beside inline cannot write and read at once".to_owned());
        }
        if self.application == Some(Application::Separate) && sides != [Side::Duplex] {
            return Err("--application apart needs --side duplex: otherwise the application has one thread".to_owned());
        }
        Ok(sides)
    }

    /// The work that these numbers of processors share, and the number of paths.
    ///
    /// # Errors
    /// A message for the user.
    fn kind(&self, processors: &[usize]) -> Result<(speedup::Kind, u16), String> {
        let most = processors.iter().copied().max().unwrap_or(1);
        match (self.placement, self.paths) {
            (Kind::Packet, None) => Ok((speedup::Kind::Packet, 1)),
            (Kind::Packet | Kind::Split | Kind::Pipeline, Some(_)) => Err("--paths is for --placement path".to_owned()),
            (Kind::Split, None) if most > SPLIT_PROCESSORS => {
                Err(format!("--placement split uses {SPLIT_PROCESSORS} processors, one per half, not {most}"))
            }
            (Kind::Split, None) => Ok((speedup::Kind::Split, 1)),
            (Kind::Pipeline, None) if processors.iter().any(|count| ![1, most].contains(count)) || most == 3 => {
                Err("--placement pipeline is measured on two or on four processors".to_owned())
            }
            (Kind::Pipeline, None) if most > PIPELINE_PROCESSORS => {
                Err(format!("--placement pipeline uses {PIPELINE_PROCESSORS} processors at most, not {most}"))
            }
            (Kind::Pipeline, None) => Ok((speedup::Kind::Pipeline, 1)),
            (Kind::Path, paths) => {
                let paths = paths.unwrap_or(u16::try_from(most.min(PATHS_MAX as usize)).unwrap_or(u16::MAX));
                // With one processor more than paths, the driver serves no path. Further processors
                // are never used.
                if most > usize::from(paths) + 1 {
                    return Err(format!("{paths} paths can use at most {} processors, not {most}", paths + 1));
                }
                if paths > 1 && self.beside.contains(&Placement::Inline) {
                    return Err("--beside inline has one path: it cannot wait for several streams".to_owned());
                }
                Ok((speedup::Kind::Path, paths))
            }
        }
    }

    /// Checks that the output files can be written.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn check_files(&self) -> Result<(), String> {
        if let Some(folder) = self.out.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(format!("--out: there is no folder {}", folder.display()));
        }
        let folder = self.plot.as_ref().and_then(|file| file.parent()).filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(format!("--plot: there is no folder {}", folder.display()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_a_list_or_a_range_and_include_one() {
        let parse = |text: &str| text.parse::<Processors>().map(|Processors(numbers)| numbers);
        assert_eq!(parse("1..4"), Ok(vec![1, 2, 3, 4]));
        assert_eq!(parse("8, 2"), Ok(vec![1, 2, 8]));
        assert_eq!(parse("3..3"), Ok(vec![1, 3]));
        for text in ["", "0", "1..65", "4..2", "1..", "two", "1,,2", "-1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_a_unit_or_are_seconds() {
        assert_eq!(parse_time("0.1"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_time("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(parse_time("0"), Ok(Duration::ZERO));
        for text in ["-1", "nan", "1e9", "soon", ""] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
