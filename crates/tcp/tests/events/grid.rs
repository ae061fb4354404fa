//! Each state gets segments with all flags, with numbers inside and outside the window and at its
//! edges, with old, new and impossible acknowledgements, with and without text. The answer must be
//! exactly the expected one.

use std::collections::BTreeSet;

use tcp::{Plan, State};
use wire::tcp::Flags;

use super::expected::{Deviation, Expected, Seg, expected};
use super::situation::{OUTSTANDING, Role, STATES, Variables, situation};
use crate::support::peer::{Peer, Segment, Sent};

/// Returns the flags of segments: all combinations of these four, with and without those that
/// change nothing here.
fn all_flags() -> impl Iterator<Item = Flags> {
    let parts = [Flags::SYN, Flags::FIN, Flags::RST, Flags::ACK];
    (0..32_u32).map(move |bits| {
        let chosen = parts.iter().enumerate().filter(|(at, _)| bits >> at & 1 != 0).map(|(_, flag)| *flag);
        let extra = if bits >> 4 != 0 { Flags::PSH } else { Flags::default() };
        chosen.fold(extra, |flags, flag| flags | flag)
    })
}

/// Returns sequence numbers: exact, in the window, at and beyond its end, just before, straddling
/// its beginning, and far away on both sides.
fn seqs(v: &Variables) -> Vec<i64> {
    let (nxt, window) = (v.rcv_nxt, v.rcv_wnd);
    let offsets = [0, 1, 100, window - 1, window, window + 1, -1, -20, -70_000, 1 << 30, -(1 << 30)];
    offsets.iter().map(|offset| nxt + offset).collect()
}

/// Returns acknowledgements: of nothing new, of a part, of everything, of more than was sent, and
/// before the first.
fn acks(v: &Variables) -> BTreeSet<i64> {
    let (una, nxt) = (v.snd_una, v.snd_nxt);
    let part = una + i64::from(OUTSTANDING);
    [una, una + 1, part.min(nxt), nxt, nxt + 1, nxt + (1 << 30), una - 1, una - 500, una - (1 << 30)].into()
}

fn segment_of(peer: &Peer, seg: Seg) -> Segment {
    peer.segment().flags(seg.flags).seq(seg.seq as u32).ack(seg.ack as u32).len(seg.text as usize)
}

/// Returns the answers, with numbers as in [`Expected`]. A reset without ACK has no number there.
fn answers(sent: &[Sent], v: &Variables) -> Vec<(Flags, i64, i64)> {
    let near = |number: u32, near: i64| near + i64::from(number.wrapping_sub(near as u32).cast_signed());
    let each = |sent: &Sent| {
        let ack = if sent.has(Flags::ACK) { near(sent.ack, v.rcv_nxt) } else { -1 };
        (sent.flags, near(sent.seq, v.snd_nxt), ack)
    };
    sent.iter().map(each).collect()
}

/// Sends the segment to the connection.
fn actual(peer: &mut Peer, v: &Variables, seg: Seg) -> Expected {
    let buffered = peer.connection.buffered() as i64;
    peer.send(segment_of(peer, seg));
    let sent = peer.sent();
    let unacked = peer.connection.buffered() as i64;
    Expected {
        answers: answers(&sent, v),
        state: peer.connection.state(),
        reason: peer.connection.close_reason(),
        // Bytes of data only: see `check`.
        snd_una: buffered - unacked,
        readable: peer.read().len() as i64,
        deviations: Vec::new(),
    }
}

/// Sends each segment to a separate connection. Returns the deviations that occurred.
fn check(state: State, role: Role) -> BTreeSet<Deviation> {
    let (_, v) = situation(state, role).expect("there is such a connection");
    let (mut count, mut deviations) = (0, BTreeSet::new());
    for flags in all_flags() {
        for seq in seqs(&v) {
            for ack in acks(&v) {
                for text in [0, 10, 40] {
                    let seg = Seg { flags, seq, ack, text };
                    let (mut peer, _) = situation(state, role).expect("there is such a connection");
                    let mut expected = expected(v, seg);
                    deviations.extend(std::mem::take(&mut expected.deviations));
                    // Neither the SYN nor the FIN is a byte of data.
                    let data = |position: i64| position.clamp(1, v.snd_nxt - i64::from(has_finished(state)));
                    expected.snd_una = data(expected.snd_una) - data(v.snd_una);
                    let actual = actual(&mut peer, &v, seg);
                    assert_eq!(actual, expected, "{seg:?} in {v:?}");
                    count += 1;
                }
            }
        }
    }
    assert!(count > 5000, "{count}");
    deviations
}

const fn has_finished(state: State) -> bool {
    !matches!(state, State::SynSent | State::SynReceived | State::Established | State::CloseWait)
}

#[test]
fn segments_in_syn_sent_are_answered_as_the_rfc_says() {
    assert_eq!(check(State::SynSent, Role::Client), [Deviation::OpensAgain].into());
}

#[test]
fn segments_for_a_server_in_syn_received_are_answered_as_the_rfc_says() {
    let known = [Deviation::SynAgain, Deviation::BeginsAnew, Deviation::SynWithAck, Deviation::BeforeTheSyn];
    assert_eq!(check(State::SynReceived, Role::Server), known.into());
}

#[test]
fn segments_for_a_client_in_syn_received_are_answered_as_the_rfc_says() {
    let known = [Deviation::SynAgain, Deviation::BeforeTheSyn];
    assert_eq!(check(State::SynReceived, Role::Client), known.into());
}

/// Checks both sides.
fn check_synchronized(state: State, also: &[Deviation]) {
    let known: BTreeSet<_> = also.iter().copied().chain([Deviation::AckOneEarly]).collect();
    for role in [Role::Server, Role::Client] {
        assert_eq!(check(state, role), known, "{role:?}");
    }
}

#[test]
fn segments_in_established_are_answered_as_the_rfc_says() {
    check_synchronized(State::Established, &[]);
}

#[test]
fn segments_in_fin_wait_1_are_answered_as_the_rfc_says() {
    check_synchronized(State::FinWait1, &[]);
}

#[test]
fn segments_in_fin_wait_2_are_answered_as_the_rfc_says() {
    check_synchronized(State::FinWait2, &[]);
}

#[test]
fn segments_in_close_wait_are_answered_as_the_rfc_says() {
    check_synchronized(State::CloseWait, &[Deviation::ResetBeforeEnd]);
}

#[test]
fn segments_in_closing_are_answered_as_the_rfc_says() {
    check_synchronized(State::Closing, &[Deviation::ResetBeforeEnd]);
}

#[test]
fn segments_in_last_ack_are_answered_as_the_rfc_says() {
    check_synchronized(State::LastAck, &[Deviation::ResetBeforeEnd]);
}

#[test]
fn segments_in_time_wait_are_answered_as_the_rfc_says() {
    check_synchronized(State::TimeWait, &[]);
}

/// Checks that every state is covered by a test above.
#[test]
fn each_state_is_covered() {
    let all: Vec<_> = STATES.iter().filter(|state| situation(**state, Role::Client).is_some()).collect();
    assert_eq!(all.len(), 9);
    assert!(STATES.iter().filter(|state| situation(**state, Role::Server).is_some()).count() == 8);
}

/// In TIME-WAIT a connection has no window: only the next number is acceptable.
#[test]
fn the_rest_of_a_connection_in_time_wait_answers_as_the_rfc_says() {
    let (peer, v) = situation(State::TimeWait, Role::Client).expect("there is such a connection");
    for flags in all_flags() {
        for seq in seqs(&v) {
            for ack in acks(&v) {
                for text in [0, 10, 40] {
                    let seg = Seg { flags, seq, ack, text };
                    let mut rest = peer.connection.time_wait().expect("it is in TIME-WAIT");
                    let (until, mut plan) = (rest.until(), Plan::default());
                    let has_answer = rest.handle_segment(peer.now, &peer.arrival(&segment_of(&peer, seg)), &mut plan);
                    let has = |flag: Flags| flags.contains(flag);
                    let len = text + i64::from(has(Flags::SYN)) + i64::from(has(Flags::FIN));
                    let is_next = seq == v.rcv_nxt;
                    let is_known = !has(Flags::ACK) || (v.snd_nxt - (1 << 30)..=v.snd_nxt).contains(&ack);
                    let is_silent = has(Flags::RST) || (is_next && len == 0 && is_known);
                    assert_eq!(has_answer, !is_silent, "{seg:?} in {v:?}");
                    let is_end_again = has(Flags::FIN) && !has(Flags::RST) && seq + len == v.rcv_nxt;
                    let expected = match (has(Flags::RST) && is_next, is_end_again) {
                        (true, _) => peer.now,
                        (_, true) => peer.now + tcp::TcpConfig::default().time_wait,
                        _ => until,
                    };
                    assert_eq!(rest.until(), expected, "{seg:?} in {v:?}");
                }
            }
        }
    }
}
