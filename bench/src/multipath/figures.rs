//! Figures computed from the raw data of a run.

use serde::Serialize;

use super::arrivals::Arrivals;
use super::case::Case;
use super::failover::{Faults, LINK};
use super::side::{Received, Sent, WARM_UP_S, until_ns};
use crate::contender::Failure;

/// The figures of one run. Those that do not apply are absent.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Figures {
    /// The rate at which the application received, from two seconds after the connection on until
    /// the sender had written everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady_bps: Option<f64>,
    /// The same from the first packet until the last byte had arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole_bps: Option<f64>,
    /// Both as shares of the capacity of all links of the case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// Everything that was sent has arrived, and nothing else.
    pub is_intact: bool,
    /// Processor time of both sides per gigabyte received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gb: Option<f64>,
}

/// The effect of a silent link failure.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct Failover {
    /// The longest silence at the application while the link was down, and the longest one in the
    /// two seconds before.
    pub gap_ms: f64,
    pub usual_gap_ms: f64,
    /// Bytes that arrived from a second after the cut until the link's recovery, as a share of the
    /// other links' capacity.
    pub rest_share: f64,
    /// The time from the link's recovery until it carried its share; absent if it never did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_share_ms: Option<f64>,
}

impl Figures {
    pub fn of(case: Case, sent: &Sent, received: &Received, faults: Option<&Faults>) -> Result<Self, Failure> {
        let mut figures = Self { median_us: sent.median_us, p99_us: sent.p99_us, ..Self::default() };
        let Some(arrivals) = &received.arrivals else {
            // In exchanges each response is compared with its request, and the run fails if they
            // differ.
            figures.is_intact = true;
            return Ok(figures);
        };
        if arrivals.bytes == 0 {
            return Err("nothing arrived".into());
        }
        figures.is_intact = received.faults == 0 && arrivals.bytes == sent.bytes;
        let from_ns = until_ns(sent.connected_ns, WARM_UP_S);
        if sent.written_ns > from_ns {
            figures.steady_bps = Some(bps(arrivals, from_ns, sent.written_ns));
        }
        let whole_s = (arrivals.last_ns - sent.begun_ns) as f64 / 1e9;
        figures.whole_bps = Some(arrivals.bytes as f64 * 8.0 / whole_s);
        if let Some(capacity) = case.capacity_bps() {
            figures.steady_share = figures.steady_bps.map(|bps| bps / capacity);
            figures.whole_share = figures.whole_bps.map(|bps| bps / capacity);
        }
        figures.cpu_s_per_gb = Some((sent.cpu_s + received.cpu_s) / (arrivals.bytes as f64 / 1e9));
        figures.failover = faults.map(|faults| failover(case, arrivals, faults));
        Ok(figures)
    }

    /// The figures as short text.
    pub fn describe(&self) -> String {
        let percent = |share: Option<f64>| share.map_or_else(String::new, |share| format!(" {:.1} %", share * 100.0));
        let mut text = String::new();
        if let (Some(steady), Some(whole)) = (self.steady_bps, self.whole_bps) {
            text = format!("steady {:.1} Mb/s{}", steady / 1e6, percent(self.steady_share));
            text += &format!(", whole {:.1} Mb/s{}", whole / 1e6, percent(self.whole_share));
        }
        if let (Some(median), Some(p99)) = (self.median_us, self.p99_us) {
            text += &format!("median {:.2} ms, p99 {:.2} ms", median / 1000.0, p99 / 1000.0);
        }
        if let Some(failover) = &self.failover {
            let share = failover.until_share_ms.map_or_else(|| "never".to_owned(), |ms| format!("{ms:.0} ms"));
            text += &format!(", gap {:.0} ms, rest {:.1} %", failover.gap_ms, failover.rest_share * 100.0);
            text += &format!(", share again after {share}");
        }
        if !self.is_intact {
            text += ", NOT INTACT";
        }
        text
    }
}

fn bps(arrivals: &Arrivals, from_ns: u64, until_ns: u64) -> f64 {
    arrivals.bytes_between(from_ns, until_ns) * 8.0 / ((until_ns - from_ns) as f64 / 1e9)
}

fn failover(case: Case, arrivals: &Arrivals, faults: &Faults) -> Failover {
    let second = 1_000_000_000;
    let ms = |ns: u64| ns as f64 / 1e6;
    let lines = case.lines();
    let rates = || lines.iter().map(|line| f64::from(line.rate_mbps.unwrap_or(0)));
    let lost = lines.get(LINK).and_then(|line| line.rate_mbps).map_or(0.0, f64::from);
    let rest_bps = case.capacity_bps().unwrap_or(0.0) * (rates().sum::<f64>() - lost) / rates().sum::<f64>();
    Failover {
        gap_ms: ms(arrivals.longest_gap_ns(faults.cut_ns, faults.restored_ns)),
        usual_gap_ms: ms(arrivals.longest_gap_ns(faults.cut_ns - 2 * second, faults.cut_ns)),
        rest_share: bps(arrivals, faults.cut_ns + second, faults.restored_ns) / rest_bps,
        until_share_ms: faults.until_share_ns().map(ms),
    }
}
