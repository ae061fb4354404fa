//! What the two ends of a transfer know.

use litz::Connection;
use litz::identity::tls::{ALPN_LEFT_OUT, ALPN_LINKS, ALPN_RUN_ID, ALPN_SMALL_FILES, ALPN_STREAMS};

/// What both ends of a connection know, as its ALPN protocol says. Each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Revision {
    /// `litz/1`.
    #[default]
    First,
    /// `litz/1.1`: the receiver reads a run id in `Hello`.
    RunId,
    /// `litz/1.2`: the receiver takes a file of unknown length.
    Streams,
    /// `litz/1.3`: both ends know the rules for many small files.
    SmallFiles,
    /// `litz/1.4`: the receiver takes links and files with holes, and is told what was skipped.
    Links,
    /// `litz/1.5`: the receiver may leave entries out and delete what is not in the list, and the sender
    /// reads about both.
    LeftOut,
}

impl Revision {
    /// That of the two ends of `connection`.
    pub fn of(connection: &Connection) -> Self {
        let stats = connection.stats();
        let known = [
            (ALPN_LEFT_OUT, Self::LeftOut),
            (ALPN_LINKS, Self::Links),
            (ALPN_SMALL_FILES, Self::SmallFiles),
            (ALPN_STREAMS, Self::Streams),
            (ALPN_RUN_ID, Self::RunId),
        ];
        let found = known.into_iter().find(|(name, _)| stats.session.protocol.as_deref() == Some(*name));
        found.map_or(Self::First, |(_, revision)| revision)
    }

    /// The newest.
    pub const LATEST: Self = Self::LeftOut;
}
