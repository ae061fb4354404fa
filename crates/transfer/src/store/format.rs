//! The JSON form of the store.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use credentials::base32;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::Issued;
use crate::ticket::Secret;

#[derive(Deserialize)]
pub(super) struct Version {
    pub(super) version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StateFile {
    pub(super) version: u32,
    pub(super) tickets: Vec<TicketRecord>,
}

/// The JSON form of a ticket.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TicketRecord {
    id: String,
    secret: String,
    issued_unix: Option<u64>,
    expires_unix: u64,
    port: u16,
    directory: String,
    bound: Option<String>,
    completed: bool,
}

impl Drop for TicketRecord {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl From<&Issued> for TicketRecord {
    fn from(ticket: &Issued) -> Self {
        Self {
            id: ticket.id.clone(),
            secret: base32::encode(ticket.secret.as_bytes()),
            issued_unix: ticket.issued_unix,
            expires_unix: ticket.expires_unix,
            port: ticket.port,
            directory: escape(&ticket.directory),
            bound: ticket.bound.map(|key| key.to_string()),
            completed: ticket.completed,
        }
    }
}

impl TryFrom<TicketRecord> for Issued {
    type Error = &'static str;

    fn try_from(mut record: TicketRecord) -> Result<Self, Self::Error> {
        let bytes = base32::decode(&record.secret).ok().map(Zeroizing::new);
        let secret = bytes.and_then(|bytes| bytes.as_slice().try_into().ok()).map(Secret::from_bytes);
        Ok(Self {
            id: std::mem::take(&mut record.id),
            secret: secret.ok_or("a secret is not readable")?,
            issued_unix: record.issued_unix,
            expires_unix: record.expires_unix,
            port: record.port,
            directory: unescape(&record.directory).ok_or("a directory is not readable")?,
            bound: record.bound.take().map(|key| key.parse()).transpose().map_err(|_| "a key is not readable")?,
            completed: record.completed,
        })
    }
}

/// Percent-encodes a path, because JSON holds only Unicode and paths hold any bytes. Printable
/// ASCII except `%` stays as it is.
fn escape(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | 0..=0x1f | 0x7f.. => text.push_str(&format!("%{byte:02x}")),
            plain => text.push(char::from(*plain)),
        }
    }
    text
}

fn unescape(text: &str) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    Some(PathBuf::from(OsStr::from_bytes(&bytes)))
}
