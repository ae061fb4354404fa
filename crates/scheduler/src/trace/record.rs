//! Parsing of a trace line.

use core::str::FromStr;

use units::{Duration, Instant, Rate};

use super::format::SECTION;
use super::replay::TraceErrorKind;
use crate::scheduler::{Choice, PATHS_MAX};
use crate::view::{Demand, PathView, Straggler};

/// A recorded call with its answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// A call of [`crate::Scheduler::choose`].
    Choose {
        /// Time of the call.
        now: Instant,
        /// The demand.
        demand: Demand,
        /// The paths; at most [`PATHS_MAX`].
        paths: Vec<PathView>,
        /// The answer.
        choice: Choice,
    },
    /// A call of [`crate::Scheduler::reinjects`].
    Reinject {
        /// Time of the call.
        now: Instant,
        /// The late data.
        straggler: Straggler,
        /// Index of the path that may send.
        on: usize,
        /// The paths; at most [`PATHS_MAX`].
        paths: Vec<PathView>,
        /// The answer.
        reinjects: bool,
    },
}

impl Record {
    /// Parses a line that is not part of the header. The error names the first invalid field.
    pub fn parse(line: &str) -> Result<Self, TraceErrorKind> {
        let mut sections: Vec<&str> = line.splitn(PATHS_MAX + 3, SECTION).collect();
        let answer = sections.pop().filter(|_| !sections.is_empty()).ok_or(TraceErrorKind::Missing("answer"))?;
        if sections.len() > PATHS_MAX + 1 {
            return Err(TraceErrorKind::TooManyPaths);
        }
        let paths = sections[1..].iter().map(|section| parse_path(section)).collect::<Result<Vec<_>, _>>()?;
        let mut call = Fields::of(sections[0]);
        let kind = call.word("call")?;
        let now = Instant::from_nanos(call.number("now")?);
        let record = match kind {
            "choose" => {
                let demand = Demand { ready_bytes: call.number("ready_bytes")?, is_last: parse_last(&mut call)? };
                Self::Choose { now, demand, paths, choice: parse_choice(answer)? }
            }
            "reinject" => {
                let path = call.number("straggler")?;
                let sent_at = Instant::from_nanos(call.number("sent_at")?);
                let straggler = Straggler { path, sent_at, bytes: call.number("bytes")? };
                let on = call.number("on")?;
                Self::Reinject { now, straggler, on, paths, reinjects: parse_answer(answer)? }
            }
            _ => return Err(TraceErrorKind::Invalid("call")),
        };
        call.finish()?;
        Ok(record)
    }
}

/// The fields of one section, in order, separated by single spaces.
struct Fields<'a>(core::str::Split<'a, char>);

impl<'a> Fields<'a> {
    fn of(section: &'a str) -> Self {
        Self(section.split(' '))
    }

    fn word(&mut self, name: &'static str) -> Result<&'a str, TraceErrorKind> {
        self.0.next().ok_or(TraceErrorKind::Missing(name))
    }

    fn number<T: FromStr>(&mut self, name: &'static str) -> Result<T, TraceErrorKind> {
        parse_number(self.word(name)?, name)
    }

    fn finish(mut self) -> Result<(), TraceErrorKind> {
        self.0.next().map_or(Ok(()), |_| Err(TraceErrorKind::ExtraField))
    }
}

/// Parses plain digits only: with a sign or a leading zero, two different lines would encode the
/// same record.
fn parse_number<T: FromStr>(word: &str, name: &'static str) -> Result<T, TraceErrorKind> {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    word.parse().ok().filter(|_| is_plain).ok_or(TraceErrorKind::Invalid(name))
}

fn parse_last(call: &mut Fields<'_>) -> Result<bool, TraceErrorKind> {
    match call.word("is_last")? {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(TraceErrorKind::Invalid("is_last")),
    }
}

fn parse_path(section: &str) -> Result<PathView, TraceErrorKind> {
    let mut fields = Fields::of(section);
    let id = fields.number("id")?;
    let (is_backup, is_suspect, accepts_datagrams) = parse_flags(fields.word("flags")?)?;
    let view = PathView {
        id,
        is_backup,
        is_suspect,
        srtt: Duration::from_nanos(fields.number("srtt")?),
        rttvar: Duration::from_nanos(fields.number("rttvar")?),
        min_rtt: Duration::from_nanos(fields.number("min_rtt")?),
        window_bytes: fields.number("window_bytes")?,
        in_flight_bytes: fields.number("in_flight_bytes")?,
        rate: Rate::from_bps(fields.number("rate")?),
        release_at: Instant::from_nanos(fields.number("release_at")?),
        accepts_datagrams,
        datagram_bytes: fields.number("datagram_bytes")?,
    };
    fields.finish()?;
    Ok(view)
}

fn parse_flags(word: &str) -> Result<(bool, bool, bool), TraceErrorKind> {
    let mut rest = if word == "-" { "" } else { word };
    let mut take = |letter: char| {
        let stripped = rest.strip_prefix(letter);
        rest = stripped.unwrap_or(rest);
        stripped.is_some()
    };
    let flags = (take('b'), take('s'), take('r'));
    if rest.is_empty() && !word.is_empty() { Ok(flags) } else { Err(TraceErrorKind::Invalid("flags")) }
}

fn parse_choice(section: &str) -> Result<Choice, TraceErrorKind> {
    let mut fields = Fields::of(section);
    let choice = match fields.word("choice")? {
        "send" => Choice::Send {
            path: fields.number("path")?,
            bytes_max: fields.number("bytes_max")?,
            copies: fields.number("copies")?,
        },
        "wait" => match fields.word("until")? {
            "-" => Choice::Wait { until: None },
            word => Choice::Wait { until: Some(Instant::from_nanos(parse_number(word, "until")?)) },
        },
        _ => return Err(TraceErrorKind::Invalid("choice")),
    };
    fields.finish()?;
    Ok(choice)
}

fn parse_answer(section: &str) -> Result<bool, TraceErrorKind> {
    match section {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(TraceErrorKind::Invalid("verdict")),
    }
}
