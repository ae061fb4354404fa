//! Protocol revision of the two ends of a transfer.

use quic_endpoint::Connection;

/// Application protocols of a file transfer (ALPN, RFC 7301), the newest first. Each has a name of
/// its own because an older receiver would refuse what it adds.
pub const PROTOCOLS: [&[u8]; 6] = [b"litz/1.5", b"litz/1.4", b"litz/1.3", b"litz/1.2", b"litz/1.1", b"litz/1"];

/// Features supported by both ends of a connection, according to its ALPN protocol. Each revision
/// includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Revision {
    /// `litz/1`.
    #[default]
    First,
    /// `litz/1.1`: the receiver reads a run id in `Hello`.
    RunId,
    /// `litz/1.2`: the receiver accepts a file of unknown length.
    Streams,
    /// `litz/1.3`: both ends support the rules for many small files.
    SmallFiles,
    /// `litz/1.4`: the receiver accepts links and files with holes, and the numbers of skipped
    /// entries.
    Links,
    /// `litz/1.5`: the receiver may leave entries out and delete unlisted ones, and the sender
    /// reads about both.
    LeftOut,
}

impl Revision {
    /// Returns the revision of the two ends of `connection`.
    pub fn of(connection: &Connection) -> Self {
        let session = connection.stats().session;
        let position = PROTOCOLS.iter().position(|name| session.protocol.as_deref() == Some(*name));
        let revisions = [Self::LeftOut, Self::Links, Self::SmallFiles, Self::Streams, Self::RunId, Self::First];
        position.map_or(Self::First, |position| revisions[position])
    }

    /// Newest revision.
    pub const LATEST: Self = Self::LeftOut;
}
