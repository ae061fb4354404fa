//! The jobs of document 002, the Parallel Protocol Engine: which of our work each of its processes does.

use litz::Activity;
use serde::Serialize;

use super::super::fit::median;
use super::super::row::{End, Source};
use super::alone::Alone;
use super::run::Spent;

/// The time of one job.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Job {
    /// The process of the paper, or ours if the paper has none.
    pub(crate) id: &'static str,
    pub(crate) label: &'static str,
    pub(crate) source: Source,
    /// Nanoseconds per segment, or per event.
    pub(crate) ns: f64,
    /// Microseconds in the paper, with segments of 4096 bytes; none for a job that it does not time.
    pub(crate) paper_us: Option<f64>,
}

/// The jobs of one side of a connection.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Jobs {
    pub(crate) rows: Vec<Job>,
    /// The sum of the rows.
    pub(crate) total_ns: f64,
    /// What the other side of the connection does for these segments: acknowledgements. Part of the sum.
    pub(crate) other_side_ns: f64,
    /// Segments that one processor handles in a second.
    pub(crate) segments_per_second: f64,
    /// The part of the time in which other programs had the processor, 0 to 1, in the worst run.
    #[serde(skip)]
    pub(crate) taken_away_share: f64,
}

/// The job of the other side.
const OTHER_SIDE: &str = "acknowledgements";

impl Jobs {
    /// Divides the time of the runs of one end.
    pub(super) fn new(end: End, runs: &[Spent], alone: &Alone) -> Self {
        let ns = |activity: Activity| median(&runs.iter().map(|run| run.ns(activity)).collect::<Vec<_>>());
        let rows = match end {
            End::Receiving => receiving(&ns, alone),
            End::Sending => sending(&ns, alone),
        };
        let total_ns: f64 = rows.iter().map(|row| row.ns).sum();
        Self {
            total_ns,
            other_side_ns: rows.iter().filter(|row| row.id == OTHER_SIDE).map(|row| row.ns).sum(),
            segments_per_second: if total_ns > 0.0 { 1e9 / total_ns } else { 0.0 },
            taken_away_share: runs.iter().map(Spent::taken_away_share).fold(0.0, f64::max),
            rows,
        }
    }
}

/// Each activity is in exactly one row: what is taken off in one is a row of its own.
fn receiving(ns: &dyn Fn(Activity) -> f64, alone: &Alone) -> Vec<Job> {
    let call = ns(Activity::RecvCall) + ns(Activity::Poll);
    let recv = ns(Activity::Route) + ns(Activity::OpenAbsorb) + ns(Activity::HandOver);
    let user = ns(Activity::Application) + ns(Activity::Serve);
    let answers = ns(Activity::Plan) + ns(Activity::Seal) + ns(Activity::Report) + ns(Activity::SendCall);
    vec![
        job("ip_intrsvc", "take packets from the device", Source::Rest, call - alone.ip_demux),
        job("ip_demux", "check the IP header, dispatch", Source::Calibrated, alone.ip_demux),
        job("tcp_recv", "connection, header, receive half", Source::Rest, recv - alone.checksum),
        job("checksum", "checksum of TCP", Source::Calibrated, alone.checksum),
        job("rtask", "timers", Source::Metered, ns(Activity::Timers)),
        job("user_task", "calls of the application", Source::Rest, user - alone.copy),
        job("user_task.copy", "copy to the application's buffer", Source::Calibrated, alone.copy),
        job(OTHER_SIDE, "plan and send acknowledgements", Source::Metered, answers),
    ]
}

fn sending(ns: &dyn Fn(Activity) -> f64, alone: &Alone) -> Vec<Job> {
    let write = ns(Activity::Application) + ns(Activity::Serve);
    let send = ns(Activity::Plan) + ns(Activity::Seal) + ns(Activity::Report);
    let parts = alone.copy + alone.checksum + alone.ip_header;
    let answers = [
        Activity::RecvCall,
        Activity::Poll,
        Activity::Route,
        Activity::OpenAbsorb,
        Activity::HandOver,
        Activity::Timers,
    ];
    vec![
        job("write", "take what is written, by reference", Source::Metered, write),
        job("tcp_snd_data", "plan, TCP header, report", Source::Rest, send - parts),
        job("checksum", "checksum of TCP", Source::Calibrated, alone.checksum),
        job("ip_send", "IP header", Source::Calibrated, alone.ip_header),
        job("driver_send", "pass packets to the device", Source::Metered, ns(Activity::SendCall)),
        job("driver_send.copy", "copy into the packet", Source::Calibrated, alone.copy),
        job(OTHER_SIDE, "receive acknowledgements", Source::Metered, answers.into_iter().map(ns).sum()),
    ]
}

/// Jobs that do not run for each segment: nanoseconds per event.
pub(super) fn events(alone: &Alone) -> Vec<Job> {
    vec![
        job("icmp_demux", "answer an echo request", Source::Calibrated, alone.icmp),
        job(
            "rtask.expiry",
            "delayed acknowledgement, when its timer expires",
            Source::Calibrated,
            alone.delayed_acknowledgement,
        ),
    ]
}

fn job(id: &'static str, label: &'static str, source: Source, ns: f64) -> Job {
    let paper_us = match id.split_once('.') {
        None => studies::printed_process(id).map(|printed| printed.us_per_segment),
        Some((process, "copy")) => studies::printed_process(process).map(|printed| printed.us_of_words),
        Some(_) => None,
    };
    // The paper copies what is written here.
    let copied_us =
        if id == "write" { studies::printed_process(id).map_or(0.0, |printed| printed.us_of_words) } else { 0.0 };
    Job { id, label, source, ns, paper_us: paper_us.map(|us| us + copied_us) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A different time for each activity, so that one that is missing or counted twice changes the sum.
    fn one_each(activity: Activity) -> f64 {
        f64::from(1 << activity as u32)
    }

    #[test]
    fn every_activity_is_in_one_job_whatever_parts_were_measured_alone() {
        let alone = Alone {
            ip_demux: 0.25,
            checksum: 0.5,
            copy: 0.125,
            ip_header: 0.75,
            icmp: 9.0,
            delayed_acknowledgement: 9.0,
        };
        let active = Activity::ALL.into_iter();
        let expected: f64 =
            active.filter(|activity| !matches!(activity, Activity::Waiting | Activity::TakenAway)).map(one_each).sum();
        for rows in [receiving(&one_each, &alone), sending(&one_each, &alone)] {
            let sum: f64 = rows.iter().map(|row| row.ns).sum();
            assert!((sum - expected).abs() < 1e-9, "{sum} {expected} {rows:?}");
        }
    }

    #[test]
    fn every_process_that_the_paper_times_for_a_segment_is_beside_ours() {
        let alone = Alone::default();
        let of = |rows: Vec<Job>| rows.iter().filter_map(|row| row.paper_us).sum::<f64>();
        // The sums of Table 1, with copies of 1024 words.
        assert!((of(receiving(&one_each, &alone)) - 856.08).abs() < 0.01);
        assert!((of(sending(&one_each, &alone)) - 1051.56).abs() < 0.01);
    }
}
