//! Segments for a listening port from a sender without a connection (RFC 9293, section 3.10.7.2).

use wire::tcp::Flags;

/// The result of [`judge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listening {
    /// The segment begins a connection: [`Connection::accept`](crate::Connection::accept).
    Begins,
    /// The segment is answered with a [reset](crate::reply::reset).
    Reset,
    /// The segment is dropped without an answer.
    Dropped,
}

/// Judges a segment by its flags: first RST, then ACK, then SYN. A segment with none of them is
/// dropped; the connection that a SYN begins keeps the data or FIN of the SYN.
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
