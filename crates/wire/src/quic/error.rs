//! Transport error codes (RFC 9000 §20.1 and the multipath draft).

use std::fmt;

/// The reason for closing a connection or abandoning a path. A peer may send any 62-bit value.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct ErrorCode(
    /// The number on the wire, at most 2^62-1.
    pub u64,
);

/// Declares each code once, so that the constant and its name cannot differ.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// Returns the registered name of the code, or `None`. Codes in the
            /// [`ErrorCode::crypto`] range have no name.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// The connection was closed without an error.
    NO_ERROR = 0x00;
    /// An internal error; the endpoint cannot continue.
    INTERNAL_ERROR = 0x01;
    /// The server refused the connection.
    CONNECTION_REFUSED = 0x02;
    /// The peer sent more data than the advertised limits permit.
    FLOW_CONTROL_ERROR = 0x03;
    /// The peer used a stream ID above the advertised limit.
    STREAM_LIMIT_ERROR = 0x04;
    /// A frame arrived for a stream whose state does not permit it.
    STREAM_STATE_ERROR = 0x05;
    /// A final size contradicts received data or another final size.
    FINAL_SIZE_ERROR = 0x06;
    /// A frame is badly formatted.
    FRAME_ENCODING_ERROR = 0x07;
    /// Transport parameters are badly formatted or contradict each other.
    TRANSPORT_PARAMETER_ERROR = 0x08;
    /// The peer issued more connection IDs than `active_connection_id_limit` permits.
    CONNECTION_ID_LIMIT_ERROR = 0x09;
    /// A protocol error without a more specific code.
    PROTOCOL_VIOLATION = 0x0a;
    /// An Initial packet carried an invalid token.
    INVALID_TOKEN = 0x0b;
    /// The application closed the connection, but the packet may not carry the application's code
    /// (§10.2.3).
    APPLICATION_ERROR = 0x0c;
    /// The peer sent more CRYPTO data than can be buffered.
    CRYPTO_BUFFER_EXCEEDED = 0x0d;
    /// A key update failed (RFC 9001 §6).
    KEY_UPDATE_ERROR = 0x0e;
    /// The confidentiality or integrity limit of the cipher was reached (RFC 9001 §6.6).
    AEAD_LIMIT_REACHED = 0x0f;
    /// The network path does not support QUIC.
    NO_VIABLE_PATH = 0x10;
    /// The versions of the handshake differ from the negotiated ones (RFC 9368 §4).
    VERSION_NEGOTIATION_ERROR = 0x11;
    /// The application abandoned the path (multipath draft-21).
    APPLICATION_ABANDON_PATH = 0x3e;
    /// The endpoint lacks the resources to keep the path (multipath draft-21).
    PATH_RESOURCE_LIMIT_REACHED = 0x3e75;
    /// The path's interface is unstable or performs badly (multipath draft-21).
    PATH_UNSTABLE_OR_POOR = 0x3e76;
    /// The peer provided no connection ID for the path (multipath draft-21).
    NO_CID_AVAILABLE_FOR_PATH = 0x3e77;
}

impl ErrorCode {
    /// Returns CRYPTO_ERROR, 0x0100-0x01ff: the handshake failed with this TLS alert (RFC 9001
    /// §4.8).
    #[inline]
    pub const fn crypto(alert: u8) -> Self {
        Self(0x0100 | alert as u64)
    }

    /// Returns the TLS alert, if the code is in the range of [`ErrorCode::crypto`].
    #[inline]
    pub const fn tls_alert(self) -> Option<u8> {
        match self.0 {
            0x0100..=0x01ff => Some((self.0 & 0xff) as u8),
            _ => None,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.tls_alert()) {
            (Some(name), _) => f.write_str(name),
            (None, Some(alert)) => write!(f, "CRYPTO_ERROR (TLS alert {alert})"),
            (None, None) => write!(f, "error code {:#x}", self.0),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_display_their_registered_name() {
        assert_eq!(ErrorCode(0x0a).to_string(), "PROTOCOL_VIOLATION");
        assert_eq!(ErrorCode(0x3e76).to_string(), "PATH_UNSTABLE_OR_POOR");
        assert_eq!(ErrorCode::crypto(120).to_string(), "CRYPTO_ERROR (TLS alert 120)");
        assert_eq!(ErrorCode::crypto(120), ErrorCode(0x178));
        assert_eq!(ErrorCode(0x178).tls_alert(), Some(120));
        assert_eq!(ErrorCode(0x200).tls_alert(), None);
        assert_eq!(ErrorCode(0x12).to_string(), "error code 0x12");
    }
}
