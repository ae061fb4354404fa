//! Warnings: something differs from what the user requested, and the command continues.

use serde_json::{Value, json};

use super::out;

/// The subject of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warning {
    /// A requested path is not available.
    PathLeftOut,
    /// The system refuses to send on a path.
    SendRefused,
    /// A path does not answer, and a setting of this host may be why.
    PathUnanswered,
    /// The receiver does not listen on an address of this host.
    NotListening,
    /// The ticket has only loopback addresses.
    LoopbackOnly,
    /// The system's socket buffers are too small for a fast link.
    SmallBuffers,
    /// The scheduler trace is incomplete.
    Trace,
    /// The journal of a connection is incomplete.
    Journal,
    /// The list of allowed keys is empty or cannot be used.
    AllowedKeys,
    /// The keys of connections are written to a file.
    KeysWritten,
    /// A network that the server of a tunnel names is not routed to it.
    RouteLeftOut,
    /// This host has the network of a tunnel itself.
    NetworkCollides,
    /// A tunnel is without what it has of IPv6, because this host has none for its device.
    Ipv6LeftOut,
    /// The server of a tunnel does not forward packets.
    NotForwarding,
    /// Another program has removed what a tunnel has set, such as a route, and it cannot be made again; or it can again.
    NetworkChanged,
    /// The addresses of a tunnel's clients cannot be written.
    AddressesNotKept,
    /// An earlier ticket, which keeps its lifetime, is served again.
    ExpiresIgnored,
    /// A relay does not serve every client.
    ClientsNotServed,
}

impl Warning {
    /// A stable identifier for programs.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::PathLeftOut => "path_left_out",
            Self::SendRefused => "send_refused",
            Self::PathUnanswered => "path_unanswered",
            Self::RouteLeftOut => "route_left_out",
            Self::NetworkCollides => "network_collides",
            Self::Ipv6LeftOut => "ipv6_left_out",
            Self::NotForwarding => "not_forwarding",
            Self::NetworkChanged => "network_changed",
            Self::AddressesNotKept => "addresses_not_kept",
            Self::NotListening => "not_listening",
            Self::LoopbackOnly => "loopback_only",
            Self::SmallBuffers => "small_buffers",
            Self::Trace => "trace",
            Self::Journal => "journal",
            Self::AllowedKeys => "allowed_keys",
            Self::KeysWritten => "keys_written",
            Self::ExpiresIgnored => "expires_ignored",
            Self::ClientsNotServed => "clients_not_served",
        }
    }

    /// Whether the warning is only advice, which `--quiet` suppresses.
    pub(crate) const fn is_advice(self) -> bool {
        matches!(self, Self::SmallBuffers | Self::PathUnanswered)
    }

    /// The warning as a JSON event.
    pub(crate) fn json(self, message: &str) -> Value {
        json!({ "event": "warning", "kind": self.label(), "message": message })
    }

    /// Prints the warning, for a command without a progress display.
    pub(crate) fn print(self, json: bool, quiet: bool, message: &str) {
        if json {
            out::json(&self.json(message));
        } else if !(quiet && self.is_advice()) {
            out::note(&format!("warning: {message}"));
        }
    }
}
