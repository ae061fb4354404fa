//! Answers to segments without a connection, and to those of an ended connection.

use units::{Duration, Instant, Seq32};
use wire::tcp::{Flags, Header, Options};

use crate::arrival::Arrival;
use crate::md5::Md5Key;
use crate::plan::Plan;
use crate::timestamps::TimestampClock;
use crate::tuple::Tuple;

/// The largest window (RFC 7323, section 2.3).
const WINDOW_MAX: i32 = 1 << 30;

/// Fills `plan` with the reset in answer to a segment without a connection (RFC 9293, section
/// 3.10.7.1). Returns false if the segment is a reset itself.
pub fn reset(arrival: &Arrival, plan: &mut Plan) -> bool {
    let header = &arrival.header;
    if arrival.has(Flags::RST) {
        return false;
    }
    let (seq, ack, flags) = if arrival.has(Flags::ACK) {
        (header.ack, Seq32::new(0), Flags::RST)
    } else {
        (Seq32::new(0), header.seq + arrival.sequence_len() as u32, Flags::RST | Flags::ACK)
    };
    fill(&arrival.tuple, seq, ack, flags, 0, None, plan);
    true
}

/// A connection in state TIME-WAIT, reduced to the state that its answers need (RFC 9293, section
/// 3.6.1).
#[derive(Debug)]
pub struct TimeWait {
    tuple: Tuple,
    seq: Seq32,
    ack: Seq32,
    clock: Option<TimestampClock>,
    time: Duration,
    until: Instant,
    dscp: u8,
    md5: Option<Md5Key>,
}

impl TimeWait {
    pub(crate) const fn new(
        tuple: Tuple,
        seq: Seq32,
        ack: Seq32,
        clock: Option<TimestampClock>,
        time: Duration,
        until: Instant,
    ) -> Self {
        Self { tuple, seq, ack, clock, time, until, dscp: 0, md5: None }
    }

    pub(crate) fn signed(self, md5: Option<Md5Key>) -> Self {
        Self { md5, ..self }
    }

    pub(crate) fn with_dscp(self, dscp: u8) -> Self {
        Self { dscp, ..self }
    }

    /// Returns the key that verifies segments.
    pub const fn md5(&self) -> Option<&Md5Key> {
        self.md5.as_ref()
    }

    /// Returns the addresses and ports.
    pub const fn tuple(&self) -> &Tuple {
        &self.tuple
    }

    /// Returns the time at which its ports are free again.
    pub const fn until(&self) -> Instant {
        self.until
    }

    /// Returns whether this SYN may begin a new connection with the same addresses and ports: its
    /// sequence number or timestamp must be later than all of the old connection (RFC 9293, section
    /// 3.10.7.4, and RFC 6191, section 2).
    pub fn may_be_replaced(&self, now: Instant, syn: &Arrival) -> bool {
        if !syn.has(Flags::SYN) || syn.header.flags.intersects(Flags::ACK | Flags::RST) {
            return false;
        }
        let is_later_number = syn.header.seq.is_after(self.ack);
        match (&self.clock, syn.header.options.timestamps) {
            (Some(clock), Some(timestamps)) => {
                let is_old = clock.is_syn_old(now, timestamps.value);
                clock.is_new(now, timestamps.value) || (is_later_number && !is_old)
            }
            _ => is_later_number,
        }
    }

    /// Returns whether a segment acknowledges nothing, or something that was sent (RFC 5961,
    /// section 5.2, with the largest window); such a segment would otherwise be dropped, or carry
    /// no news.
    fn is_known(&self, arrival: &Arrival) -> bool {
        let age = self.seq.distance_from(arrival.header.ack);
        !arrival.has(Flags::ACK) || (0..=WINDOW_MAX).contains(&age)
    }

    /// Fills `plan` with the answer to a segment; returns false if there is none. A repeated FIN
    /// restarts the period. A reset with the next number [ends](Self::until) it now (RFC 9293,
    /// section 3.10.7.4, second check): the peer has restarted, and its SYN is not later than the
    /// connection. RFC 1337 would ignore the reset, and the peer could not connect for a minute.
    pub fn handle_segment(&mut self, now: Instant, arrival: &Arrival, plan: &mut Plan) -> bool {
        if arrival.has(Flags::RST) {
            if arrival.header.seq == self.ack {
                self.until = now;
            }
            return false;
        }
        if arrival.has(Flags::FIN) && arrival.header.seq + arrival.sequence_len() as u32 == self.ack {
            self.until = now + self.time;
        }
        if arrival.sequence_len() == 0 && arrival.header.seq == self.ack && self.is_known(arrival) {
            return false;
        }
        let clock = self.clock.as_ref().map(|clock| (clock, now));
        fill(&self.tuple, self.seq, self.ack, Flags::ACK, 0, clock, plan);
        plan.sign(self.md5.as_ref());
        plan.dscp = self.dscp;
        true
    }
}

fn fill(
    tuple: &Tuple,
    seq: Seq32,
    ack: Seq32,
    flags: Flags,
    window: u16,
    clock: Option<(&TimestampClock, Instant)>,
    plan: &mut Plan,
) {
    plan.release();
    plan.sign(None);
    (plan.tuple, plan.dscp, plan.ecn, plan.segment) = (*tuple, 0, None, 1);
    let timestamps = clock.map(|(clock, now)| clock.stamp(now));
    plan.header = Header {
        source_port: tuple.local.port(),
        destination_port: tuple.remote.port(),
        seq,
        ack,
        flags,
        window,
        urgent: 0,
        options: Options { timestamps, ..Options::default() },
    };
}
