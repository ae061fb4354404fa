//! Explicit congestion notification: the codepoints of IP packets (RFC 3168, section 5).

/// An ECN codepoint other than Not-ECT, which is represented by `None` in an `Option<Ecn>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// ECT(0): the sender supports ECN.
    Ect0,
    /// ECT(1): the sender supports ECN and L4S (RFC 9331).
    Ect1,
    /// CE: a queue on the path was congested.
    Ce,
}
