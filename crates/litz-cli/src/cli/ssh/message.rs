//! What the two ends say over ssh: one JSON object a line, specified in docs/spec/ssh.md.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

/// The version of these messages. Both ends must have the same.
pub(crate) const VERSION: u32 = 1;

/// The longest line. A request names at most what fits into it.
pub(crate) const LINE_LEN_MAX: usize = 1 << 20;

/// The first line of the far end.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Hello {
    pub(crate) litz_ssh: u32,
    /// Of the program, for messages.
    pub(crate) version: String,
    /// The host's public key.
    pub(crate) key: String,
}

/// The answer: what the far end is to do.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    Receive(ReceiveRequest),
    Send(SendRequest),
}

/// To receive files.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReceiveRequest {
    /// Created, unless its parent is missing; the home directory if it is empty.
    pub(crate) directory: OsString,
    /// The sender's public key.
    pub(crate) sender: String,
    pub(crate) overwrite: bool,
    /// The UDP port to listen on; any, if not given.
    pub(crate) port: Option<u16>,
    pub(crate) idle_timeout_ms: u64,
}

/// To send files.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendRequest {
    pub(crate) paths: Vec<OsString>,
    /// The receiver's ticket, which has no secret: its addresses and its fingerprint.
    pub(crate) ticket: String,
    pub(crate) options: SenderOptions,
}

/// The options of a sender that this host's user chose for the far one.
#[derive(Serialize, Deserialize, Debug, Default, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct SenderOptions {
    pub(crate) rate_bps: Option<u64>,
    pub(crate) burst_bytes: Option<u64>,
    pub(crate) keep: Option<String>,
    pub(crate) parallel: Option<u8>,
    pub(crate) congestion: Option<String>,
    /// In order: whether it includes, and the pattern.
    pub(crate) patterns: Vec<(bool, String)>,
    pub(crate) retry_for_ms: u64,
    pub(crate) idle_timeout_ms: u64,
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn names_of_any_bytes_survive() {
        let paths = vec![OsString::from("a b'\"\n$"), OsString::from_vec(vec![b'x', 0xff, 0xfe])];
        let (ticket, options) = ("litz1x".to_owned(), SenderOptions::default());
        let text =
            serde_json::to_string(&Request::Send(SendRequest { paths: paths.clone(), ticket, options })).unwrap();
        assert!(!text.contains('\n'));
        let Request::Send(back) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!(back.paths, paths);
    }

    #[test]
    fn unknown_requests_are_refused() {
        for text in ["{}", "[]", r#"{"run":"sh"}"#, r#"{"receive":{"directory":{"Unix":[47]}}}"#, "null", ""] {
            assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
        }
    }
}
