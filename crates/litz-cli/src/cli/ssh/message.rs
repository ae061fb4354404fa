//! What the two ends say over ssh: one JSON object a line, specified in docs/spec/ssh.md.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

/// The version of these messages. Both ends must have the same.
pub(crate) const VERSION: u32 = 1;

/// The options of a newer version that the far end knows. One that does not name them refuses a request with
/// them.
pub(crate) const OPTIONS: [&str; 3] = ["update", "dry-run", "delete"];

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
    /// Those of [`OPTIONS`] that it knows.
    #[serde(default)]
    pub(crate) options: Vec<String>,
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
    /// Keeps files that are newer than the sender's.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) update: bool,
    /// Writes nothing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) dry_run: bool,
    /// Deletes what the sent directories do not have, but for what these patterns exclude.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delete: Option<Vec<(bool, String)>>,
}

/// Older versions know no option that is not given.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
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
    fn an_older_far_end_reads_a_request_without_newer_options() {
        let (directory, sender) = (OsString::from("in"), "key".to_owned());
        let mut request = ReceiveRequest {
            directory,
            sender,
            overwrite: true,
            port: None,
            idle_timeout_ms: 1,
            update: false,
            dry_run: false,
            delete: None,
        };
        let members = |request: &ReceiveRequest| {
            let value = serde_json::to_value(request).unwrap();
            value.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(members(&request), ["directory", "idle_timeout_ms", "overwrite", "port", "sender"]);
        (request.update, request.dry_run, request.delete) = (true, true, Some(vec![(false, "*.o".to_owned())]));
        assert_eq!(members(&request).len(), 8);
        let hello: Hello = serde_json::from_str(r#"{"litz_ssh":1,"version":"0.1.0","key":"x"}"#).unwrap();
        assert!(hello.options.is_empty(), "an older one names none");
    }

    #[test]
    fn unknown_requests_are_refused() {
        for text in ["{}", "[]", r#"{"run":"sh"}"#, r#"{"receive":{"directory":{"Unix":[47]}}}"#, "null", ""] {
            assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
        }
    }
}
