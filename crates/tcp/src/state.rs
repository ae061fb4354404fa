//! The state of a connection (RFC 9293, section 3.3.2).

/// The states after the passive or active open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Our SYN was sent.
    SynSent,
    /// SYNs were sent and received; ours is not acknowledged.
    SynReceived,
    /// Data flow in both directions.
    Established,
    /// Our FIN was sent.
    FinWait1,
    /// Our FIN is acknowledged; the peer still sends.
    FinWait2,
    /// Both FINs were sent, each before the other was received; ours is not acknowledged.
    Closing,
    /// The peer's FIN was received; we still send.
    CloseWait,
    /// Our FIN was sent after the peer's.
    LastAck,
    /// Both FINs are acknowledged; repeated FINs of the peer are answered for a while.
    TimeWait,
    /// The connection has ended.
    Closed,
}

impl State {
    /// Returns whether the handshake is complete and the connection has not ended.
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }

    /// Returns whether the peer may still send data.
    pub(crate) const fn may_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// Records that our FIN was sent.
    pub(crate) fn on_fin_sent(&mut self) {
        *self = match *self {
            Self::Established | Self::SynReceived => Self::FinWait1,
            Self::CloseWait => Self::LastAck,
            other => other,
        };
    }

    /// Records that our FIN was acknowledged.
    pub(crate) fn on_fin_acked(&mut self) {
        *self = match *self {
            Self::FinWait1 => Self::FinWait2,
            Self::Closing => Self::TimeWait,
            Self::LastAck => Self::Closed,
            other => other,
        };
    }

    /// Records that the peer's FIN was received, with everything before it.
    pub(crate) fn on_fin_received(&mut self) {
        *self = match *self {
            Self::Established => Self::CloseWait,
            Self::FinWait1 => Self::Closing,
            Self::FinWait2 => Self::TimeWait,
            other => other,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_side_closes_first_or_both_at_once() {
        let run = |steps: &[fn(&mut State)]| {
            let mut state = State::Established;
            steps.iter().for_each(|step| step(&mut state));
            state
        };
        let (sent, acked, received) = (State::on_fin_sent, State::on_fin_acked, State::on_fin_received);
        assert_eq!(run(&[sent, acked, received]), State::TimeWait);
        assert_eq!(run(&[sent, received, acked]), State::TimeWait);
        assert_eq!(run(&[received, sent, acked]), State::Closed);
        assert_eq!(run(&[received, received, sent]), State::LastAck);
    }
}
