//! A connection in each state, on each side.

use tcp::{AckPolicy, State, TcpConfig};
use units::Duration;
use wire::tcp::Flags;

use crate::support::peer::{INITIAL, PEER_INITIAL, Peer, offer};

/// Bytes that this side has sent: acknowledged ones, and unacknowledged ones.
const ACKED: u32 = 1000;
pub(super) const OUTSTANDING: u32 = 50;

/// Bytes that the peer has sent, and that were read.
const RECEIVED: u32 = 100;

/// Initial receive window.
const WINDOW: u32 = 20_000;

/// Side that has opened the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The peer.
    Server,
    /// This side. In SYN-RECEIVED both have.
    Client,
}

/// The states in which segments arrive at a connection.
pub(super) const STATES: [State; 9] = [
    State::SynSent,
    State::SynReceived,
    State::Established,
    State::FinWait1,
    State::FinWait2,
    State::CloseWait,
    State::Closing,
    State::LastAck,
    State::TimeWait,
];

/// The variables of the RFC's rules. Numbers count from the initial ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variables {
    pub(super) state: State,
    pub(super) role: Role,
    pub(super) snd_una: i64,
    pub(super) snd_nxt: i64,
    pub(super) rcv_nxt: i64,
    pub(super) rcv_wnd: i64,
}

/// Returns a configuration with immediate acknowledgements, so that each is seen. The peer has no
/// timestamps: they have separate tests.
fn config() -> TcpConfig {
    let acks = AckPolicy { delay_max: Duration::ZERO, ..TcpConfig::default().acks };
    TcpConfig { acks, ecn: false, receive_buffer: WINDOW as usize, ..TcpConfig::default() }
}

/// Returns a connection in this state, with its sent data taken, and its variables. Returns `None`
/// if there is none: a server is never in SYN-SENT.
pub(super) fn situation(state: State, role: Role) -> Option<(Peer, Variables)> {
    let mut peer = match (state, role) {
        (State::SynSent, Role::Server) => return None,
        (State::SynReceived, Role::Server) => {
            let mut peer = Peer::sends_syn(&config(), offer(), Flags::SYN, (INITIAL, PEER_INITIAL));
            peer.sent();
            peer
        }
        (State::SynSent | State::SynReceived, Role::Client) => {
            let mut peer = Peer::awaits(&config());
            peer.sent();
            if state == State::SynReceived {
                peer.send(peer.segment().flags(Flags::SYN).ack(0));
                peer.sent();
                peer.nxt = 1;
            }
            peer
        }
        (_, Role::Server) => Peer::opens(&config(), offer()),
        (_, Role::Client) => Peer::answers(&config(), offer(), Flags::SYN | Flags::ACK),
    };
    if state.is_synchronized() {
        transfer(&mut peer);
        walk(&mut peer, state);
    }
    assert_eq!(peer.connection.state(), state);
    let is_open = state.is_synchronized();
    let is_outstanding =
        matches!(state, State::Established | State::FinWait1 | State::CloseWait | State::Closing | State::LastAck);
    let snd_una = if is_open { 1 + i64::from(ACKED) } else { 0 };
    let has_end = matches!(state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait);
    let has_finished = !matches!(state, State::SynSent | State::SynReceived | State::Established | State::CloseWait);
    let snd_nxt = if is_open { 1 + i64::from(ACKED + OUTSTANDING) } else { 1 } + i64::from(has_finished);
    let variables = Variables {
        state,
        role,
        snd_una: if is_outstanding || !is_open { snd_una } else { snd_nxt },
        snd_nxt,
        rcv_nxt: if is_open { 1 + i64::from(RECEIVED) + i64::from(has_end) } else { 1 },
        // A wider window is not announced until that is worth a segment.
        rcv_wnd: 1 + i64::from(WINDOW) - if is_open { 1 + i64::from(RECEIVED) + i64::from(has_end) } else { 1 },
    };
    Some((peer, variables))
}

/// Transfers data in both directions; the last of ours are not acknowledged.
fn transfer(peer: &mut Peer) {
    peer.write(ACKED as usize);
    peer.receive();
    peer.send_data(RECEIVED as usize);
    assert_eq!(peer.read().len(), RECEIVED as usize);
    peer.receive();
    peer.write(OUTSTANDING as usize);
    peer.sent();
}

/// Moves the connection from ESTABLISHED to `state`.
fn walk(peer: &mut Peer, state: State) {
    let end = |peer: &mut Peer, ack: u32| {
        peer.send(peer.segment().flags(Flags::FIN | Flags::ACK).ack(ack));
        peer.nxt += 1;
        peer.sent();
    };
    let finish = |peer: &mut Peer| {
        peer.connection.finish();
        peer.sent();
    };
    let all = 1 + ACKED + OUTSTANDING + 1;
    match state {
        State::FinWait1 => finish(peer),
        State::FinWait2 | State::TimeWait => {
            finish(peer);
            peer.expected = all;
            peer.send_ack();
            peer.sent();
            if state == State::TimeWait {
                end(peer, all);
            }
        }
        State::CloseWait => end(peer, 1 + ACKED),
        State::Closing => {
            finish(peer);
            end(peer, 1 + ACKED);
        }
        State::LastAck => {
            end(peer, 1 + ACKED);
            finish(peer);
        }
        _ => {}
    }
}
