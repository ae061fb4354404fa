//! Display of entries.

use std::fmt;

use ::journal::out::Half;
use wire::quic::VARINT_MAX;

use super::entry::Input;
use crate::arrival::Arrival;
use crate::icmp::IcmpErrorKind;

/// One entry of a log: an input or an output, displayed as one line.
#[derive(Debug)]
pub struct Entry(pub(crate) Input, pub(crate) Half);

/// An input of this half, displayed as one line.
pub(crate) struct Text<'a>(pub(crate) &'a Input, pub(crate) Half);

impl Entry {
    /// Returns the name of the kind of entry.
    pub const fn name(&self) -> &'static str {
        name(&self.0)
    }

    /// Returns whether the entry is an event for the application or an application call that is not
    /// about data: the first entries of interest in a log.
    pub const fn is_milestone(&self) -> bool {
        match &self.0 {
            Input::Event(event) => !event.is_about_data(),
            Input::Icmp(_)
            | Input::PassOverSyn
            | Input::Finish
            | Input::Abort
            | Input::Orphan
            | Input::SetNagle(_)
            | Input::SetKeepAlive(_)
            | Input::SetDscp(_)
            | Input::Detached
            | Input::Attached => true,
            _ => false,
        }
    }
}

const fn name(input: &Input) -> &'static str {
    match input {
        Input::Timeout => "timeout",
        Input::PlanAsked(_) => "plan",
        Input::Emitted(_) => "emitted",
        Input::NotEmitted(_) => "not_emitted",
        Input::Segment(_) => "segment",
        Input::Icmp(_) => "icmp",
        Input::PassOverSyn => "pass_over_syn",
        Input::Write(_) => "write",
        Input::Finish => "finish",
        Input::Read(_) => "read",
        Input::Abort => "abort",
        Input::Orphan => "orphan",
        Input::SetNagle(_) => "set_nagle",
        Input::SetKeepAlive(_) => "set_keep_alive",
        Input::SetDscp(_) => "set_dscp",
        Input::Event(_) => "event",
        Input::Detached => "detached",
        Input::Attached => "attached",
        Input::GaveCommands(_) => "gave_commands",
        Input::TookCommands(_) => "took_commands",
        Input::GaveReport(_) => "gave_report",
        Input::TookReport(_) => "took_report",
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text(&self.0, self.1).fmt(f)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(input, half) = *self;
        if half == Half::Receive {
            f.write_str("receive half: ")?;
        }
        f.write_str(name(input))?;
        match input {
            Input::Timeout | Input::Finish | Input::Abort => Ok(()),
            Input::PassOverSyn => f.write_str(": a cookie has answered it"),
            Input::Orphan => f.write_str(": the application is gone"),
            Input::PlanAsked(segments) => write!(f, " of at most {segments} segments"),
            Input::Emitted(number) | Input::NotEmitted(number) => write!(f, " transmission {number}"),
            Input::Segment(arrival) => write_segment(arrival, f),
            Input::Icmp(error) => match error.kind {
                IcmpErrorKind::PacketTooBig(mtu) => {
                    write!(f, " about {}: too big, the link carries {} bytes", error.seq.get(), mtu.unwrap_or(0))
                }
                IcmpErrorKind::Refused => write!(f, " about {}: refused", error.seq.get()),
                IcmpErrorKind::Unreachable => write!(f, " about {}: unreachable", error.seq.get()),
            },
            Input::Write(len) => write!(f, " {len} bytes"),
            // No limit.
            Input::Read(len) if *len as u64 >= VARINT_MAX => Ok(()),
            Input::Read(len) => write!(f, " at most {len} bytes"),
            Input::SetNagle(nagle) => write!(f, ": {nagle}"),
            Input::SetKeepAlive(None) => f.write_str(": never"),
            Input::SetKeepAlive(Some(keep_alive)) => {
                write!(f, ": after {}, then every {}", keep_alive.after, keep_alive.interval)
            }
            Input::SetDscp(dscp) => write!(f, ": {dscp}"),
            Input::Event(event) => write!(f, ": {event}"),
            Input::Detached => f.write_str(": the receive half is on another processor"),
            Input::Attached => f.write_str(": the receive half is back"),
            Input::GaveCommands(number)
            | Input::TookCommands(number)
            | Input::GaveReport(number)
            | Input::TookReport(number) => write!(f, " {number}"),
        }
    }
}

fn write_segment(arrival: &Arrival, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (header, len) = (&arrival.header, arrival.data.len());
    write!(f, " {} {}+{len} ack {} window {}", header.flags, header.seq.get(), header.ack.get(), header.window)?;
    if arrival.segment != len && len > 0 {
        write!(f, ", joined of {} bytes each", arrival.segment)?;
    }
    header.options.sack.iter().try_for_each(|(start, end)| write!(f, ", has {}-{}", start.get(), end.get()))
}
