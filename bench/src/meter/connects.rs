//! Processor time of successive connections.

use std::time::Duration;

use crate::usage;
use crate::work::Figures;

/// Connections before counting begins.
const WARM_UP: usize = 50;

/// Counts whole connections and the processor time from the end of the warm-up to the end of the
/// last one. Each side counts its own; the sum is the cost of one connection.
#[derive(Default)]
pub struct ConnectMeter {
    done: usize,
    from: Duration,
    until: Duration,
}

impl ConnectMeter {
    /// Connections of one run, the warm-up included.
    pub const CONNECTIONS: usize = WARM_UP + 500;

    /// Counts a connection that has ended.
    pub fn note(&mut self) {
        self.done += 1;
        self.until = usage::cpu_time();
        if self.done == WARM_UP {
            self.from = self.until;
        }
    }

    pub fn figures(&self) -> Figures {
        let counted = self.done.saturating_sub(WARM_UP);
        let cpu_s = (self.until.saturating_sub(self.from)).as_secs_f64();
        Figures { cpu_s_per_connection: (counted > 0).then(|| cpu_s / counted as f64), ..Figures::default() }
    }
}
