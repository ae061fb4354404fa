//! Segments for a port that listens, whose sender has no connection (RFC 9293, section 3.10.7.2).

use wire::tcp::Flags;

/// The result of [`judge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listening {
    /// The segment begins a connection: [`Connection::accept`](crate::Connection::accept).
    Begins,
    /// It is answered with a [reset](crate::reply::reset).
    Reset,
    /// It is dropped without an answer.
    Dropped,
}

/// Judges a segment by its flags: first RST, then ACK, then SYN. One with none of them is dropped;
/// an end or data that come with a SYN are kept by the connection that it begins.
pub fn judge(flags: Flags) -> Listening {
    if flags.contains(Flags::RST) {
        Listening::Dropped
    } else if flags.contains(Flags::ACK) {
        Listening::Reset
    } else if flags.contains(Flags::SYN) {
        Listening::Begins
    } else {
        Listening::Dropped
    }
}
