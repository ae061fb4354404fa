//! Which version of QUIC a connection uses (RFC 9368; versions 1 and 2 are compatible, RFC 9369,
//! section 4).
//!
//! A client begins in the original version. A server that wants another one which the client offers
//! continues in it without a further round trip: it derives all keys but those of the client's
//! first flight with the constants of the negotiated version.

use wire::quic::{Side, TransportParameters, Version, VersionInformation};

/// The versions of QUIC that an endpoint uses, and the one that it prefers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Versions {
    /// Version 1 alone (RFC 9000).
    V1,
    /// Both. A client begins with version 1 and continues with version 2 if the server prefers it; a
    /// server continues with the version in which the client begins.
    #[default]
    PreferV1,
    /// Both. A client begins with version 1, which every server has; a server continues with version
    /// 2 if the client offers it (RFC 9369, section 4). That costs no round trip.
    PreferV2,
    /// Version 2 alone (RFC 9369). A client cannot connect to a server without it.
    V2,
}

impl Versions {
    /// All values, in the order in which journals number them.
    pub(crate) const ALL: [Self; 4] = [Self::V1, Self::PreferV1, Self::PreferV2, Self::V2];

    /// The versions, the preferred one first.
    pub(crate) fn list(self) -> &'static [Version] {
        match self {
            Self::V1 => &[Version::V1],
            Self::PreferV1 => &[Version::V1, Version::V2],
            Self::PreferV2 => &[Version::V2, Version::V1],
            Self::V2 => &[Version::V2],
        }
    }

    /// True if connections may begin in `version`.
    pub(crate) fn accepts(self, version: Version) -> bool {
        self.list().contains(&version)
    }

    /// The version in which a client begins: the one that a server most likely has (RFC 9368, section
    /// 5).
    pub(crate) fn original(self) -> Version {
        if self.accepts(Version::V1) { Version::V1 } else { Version::V2 }
    }
}

/// The versions of one handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeVersions {
    /// The version of the client's first packet.
    pub original: Version,
    /// Those that this side uses.
    pub versions: Versions,
}

impl HandshakeVersions {
    /// Version 1 alone.
    pub const V1: Self = Self { original: Version::V1, versions: Versions::V1 };

    /// The version with which a server continues, given the transport parameters of the client's
    /// hello. If they make no sense, the handshake fails for that reason later.
    pub(crate) fn choose(&self, client_parameters: &[u8]) -> Version {
        let Ok(parameters) = TransportParameters::parse(client_parameters, Side::Client) else { return self.original };
        let Some(offer) = parameters.version_information else { return self.original };
        // "The server MUST NOT reply with a version that is not present in the client's Available
        // Versions, unless it is the original version" (RFC 9368, section 2.3).
        let mut wanted = self.versions.list().iter().copied();
        wanted
            .find(|version| *version == self.original || offer.available.contains(&version.number()))
            .unwrap_or(self.original)
    }

    /// Appends the parameter version_information to transport parameters: `chosen`, and what this
    /// side uses (RFC 9368, section 3). Nothing if this side has one version alone.
    pub(crate) fn put(&self, chosen: Version, parameters: &mut Vec<u8>) {
        let list = self.versions.list();
        if list.len() < 2 {
            return;
        }
        let available = list.iter().map(|version| version.number()).collect();
        let version_information = Some(VersionInformation { chosen: chosen.number(), available });
        TransportParameters { version_information, ..TransportParameters::default() }.emit(parameters, None);
    }

    /// A client's parameters with its version information.
    pub(crate) fn with_information(&self, chosen: Version, parameters: &[u8]) -> Vec<u8> {
        let mut out = parameters.to_vec();
        self.put(chosen, &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(chosen: Version, available: &[Version]) -> Vec<u8> {
        let available = available.iter().map(|version| version.number()).collect();
        let version_information = Some(VersionInformation { chosen: chosen.number(), available });
        let mut out = Vec::new();
        TransportParameters { version_information, ..TransportParameters::default() }.emit(&mut out, None);
        out
    }

    #[test]
    fn a_server_changes_only_to_a_version_that_both_sides_have() {
        let (v1, v2) = (Version::V1, Version::V2);
        let choose = |versions, original, offer: &[u8]| HandshakeVersions { original, versions }.choose(offer);
        let both = [v2, v1];
        assert_eq!(choose(Versions::PreferV2, v1, &offer(v1, &both)), v2);
        assert_eq!(choose(Versions::PreferV2, v1, &offer(v1, &[v1])), v1, "the client has no other");
        assert_eq!(choose(Versions::PreferV1, v1, &offer(v1, &both)), v1, "the client's preference is advice");
        assert_eq!(choose(Versions::PreferV1, v2, &offer(v2, &both)), v1);
        assert_eq!(choose(Versions::PreferV1, v2, &[]), v2, "the client says nothing");
        assert_eq!(choose(Versions::V1, v1, &offer(v1, &both)), v1);
        assert_eq!(choose(Versions::PreferV2, v1, &[0x11, 3, 0, 0, 1]), v1, "it is malformed");
    }
}
