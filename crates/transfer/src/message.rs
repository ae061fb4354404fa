//! Messages of the control stream and their encoding.
//!
//! A frame is a length (4 bytes, big-endian, of the rest), a type (1 byte) and a body of
//! fixed-width big-endian fields. No frame exceeds [`FRAME_LEN_MAX`]; decoding takes any bytes,
//! allocates in proportion to them, and accepts exactly one encoding of each message.

use units::text::printable;

use super::error::{DETAIL_LEN_MAX, FileError, FileErrorKind};
use super::left_out::{LeftOutReason, NothingDeletedReason};
use super::link_target::LinkTarget;
use super::manifest::{Entry, EntryKind, Modified, SkippedCounts};
use super::names::RelativePath;
use super::proof::Proof;
use super::run_id::RunId;
use super::segment::FileHash;

/// One message. Each comment names the side that sends it.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// Sender: the first message. It holds nothing about files. The run id is sent only to receivers
    /// that read it.
    Hello { version: u16, base_log2: u8, proof: Option<Proof>, run: Option<RunId> },
    /// Sender: the next entries of the list.
    Entries(Vec<Entry>),
    /// Sender: the list is complete and has this many entries. The numbers of skipped entries are
    /// sent only to receivers that read them.
    EntriesEnd { count: u32, skipped: Option<SkippedCounts> },
    /// Sender: all segments of a file are sent (or were held), with the hash of the file.
    FileDone { index: u32, hash: FileHash },
    /// Sender: a file cannot be sent.
    FileAbort { index: u32, error: FileError },
    /// Sender: all pieces of a stream are sent, with its length and hash.
    StreamEnd { index: u32, size: u64, hash: FileHash },
    /// Sender: all results are in, and the data streams are done.
    Finish,
    /// Receiver: the sender may send. The proof answers a ticket's.
    Accepted { version: u16, proof: Option<Proof> },
    /// Receiver: the sender may not send. `code` is that of a [`crate::Refusal`].
    Refused { code: u8 },
    /// Receiver: ready for a file; `held` has the segments that it holds (a set's bytes).
    Plan { index: u32, held: Vec<u8> },
    /// Receiver: the number of pieces, from the first, that the sender may send of a stream.
    Credit { index: u32, pieces: u32 },
    /// Receiver: the amount of data of an earlier attempt hashed so far.
    Verifying { index: u32, bytes_done: u64, bytes_total: u64 },
    /// Receiver: an entry is in place, files with their hash.
    Done { index: u32, hash: Option<FileHash> },
    /// Receiver: an entry failed.
    Failed { index: u32, error: FileError },
    /// Receiver: it leaves an entry out.
    LeftOut { index: u32, reason: LeftOutReason },
    /// Receiver, after Finish: it has deleted this entry, or would delete it.
    Deleted { is_dry_run: bool, path: RelativePath },
    /// Receiver, after Finish: this entry cannot be deleted.
    NotDeleted { path: RelativePath, error: FileError },
    /// Receiver, after Finish: it deletes nothing although its user requested it.
    NothingDeleted { reason: NothingDeletedReason },
    /// Receiver: everything is on disk. The last message.
    Bye,
    /// Either: it ends the transfer early.
    Stop { code: StopCode, reason: String },
}

/// Reason why a side ends the transfer early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum StopCode {
    /// Its user requested it.
    Cancelled = 1,
    /// A permanent failure with this message: another attempt without a change would fail the same
    /// way.
    Failed = 2,
}

/// Error: the bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl Message {
    /// Appends the whole frame to `out`.
    ///
    /// # Panics
    /// Panics if the message exceeds a frame. Callers split every list to fit.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(self.type_code());
        self.encode_body(out);
        let len = out.len() - start - 4;
        assert!(len <= FRAME_LEN_MAX, "a frame of {len} bytes");
        out[start..start + 4].copy_from_slice(&(len as u32).to_be_bytes());
    }

    /// Decodes the message in `frame`, which is a frame without its length.
    pub(crate) fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(frame);
        let message = Self::decode_body(reader.u8()?, &mut reader)?;
        if !reader.0.is_empty() {
            return Err(Malformed("bytes follow a message"));
        }
        Ok(message)
    }

    const fn type_code(&self) -> u8 {
        match self {
            Self::Hello { .. } => 0x01,
            Self::Entries(_) => 0x02,
            Self::EntriesEnd { .. } => 0x03,
            Self::FileDone { .. } => 0x04,
            Self::FileAbort { .. } => 0x05,
            Self::Finish => 0x06,
            Self::StreamEnd { .. } => 0x07,
            Self::Accepted { .. } => 0x41,
            Self::Refused { .. } => 0x42,
            Self::Plan { .. } => 0x43,
            Self::Verifying { .. } => 0x44,
            Self::Done { .. } => 0x45,
            Self::Failed { .. } => 0x46,
            Self::Bye => 0x47,
            Self::Credit { .. } => 0x48,
            Self::LeftOut { .. } => 0x49,
            Self::Deleted { .. } => 0x4a,
            Self::NotDeleted { .. } => 0x4b,
            Self::NothingDeleted { .. } => 0x4c,
            Self::Stop { .. } => 0x7f,
        }
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { version, base_log2, proof, run } => {
                out.extend_from_slice(&version.to_be_bytes());
                out.push(*base_log2);
                put_optional(out, proof.as_ref().map(Proof::as_bytes));
                out.extend_from_slice(run.as_ref().map_or(&[], |run| run.as_bytes().as_slice()));
            }
            Self::Entries(entries) => entries.iter().for_each(|entry| put_entry(out, entry)),
            Self::EntriesEnd { count, skipped } => {
                out.extend_from_slice(&count.to_be_bytes());
                for number in skipped.iter().flat_map(|skipped| [skipped.links, skipped.special, skipped.unreadable]) {
                    out.extend_from_slice(&number.to_be_bytes());
                }
            }
            Self::FileDone { index, hash } => {
                out.extend_from_slice(&index.to_be_bytes());
                out.extend_from_slice(hash.as_bytes());
            }
            Self::FileAbort { index, error } | Self::Failed { index, error } => {
                out.extend_from_slice(&index.to_be_bytes());
                put_file_error(out, error);
            }
            Self::LeftOut { index, reason } => {
                out.extend_from_slice(&index.to_be_bytes());
                out.push(reason.code());
            }
            Self::Deleted { is_dry_run, path } => {
                out.push(u8::from(*is_dry_run));
                put_path(out, path);
            }
            Self::NotDeleted { path, error } => {
                put_file_error(out, error);
                put_path(out, path);
            }
            Self::NothingDeleted { reason } => out.push(reason.code()),
            Self::StreamEnd { index, size, hash } => {
                out.extend_from_slice(&index.to_be_bytes());
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(hash.as_bytes());
            }
            Self::Credit { index, pieces } => {
                out.extend_from_slice(&index.to_be_bytes());
                out.extend_from_slice(&pieces.to_be_bytes());
            }
            Self::Accepted { version, proof } => {
                out.extend_from_slice(&version.to_be_bytes());
                put_optional(out, proof.as_ref().map(Proof::as_bytes));
            }
            Self::Refused { code } => out.push(*code),
            Self::Plan { index, held } => {
                out.extend_from_slice(&index.to_be_bytes());
                out.extend_from_slice(held);
            }
            Self::Verifying { index, bytes_done, bytes_total } => {
                out.extend_from_slice(&index.to_be_bytes());
                out.extend_from_slice(&bytes_done.to_be_bytes());
                out.extend_from_slice(&bytes_total.to_be_bytes());
            }
            Self::Done { index, hash } => {
                out.extend_from_slice(&index.to_be_bytes());
                put_optional(out, hash.as_ref().map(FileHash::as_bytes));
            }
            Self::Stop { code, reason } => {
                out.push(*code as u8);
                put_text(out, reason);
            }
            Self::Finish | Self::Bye => {}
        }
    }

    fn decode_body(type_code: u8, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match type_code {
            0x01 => {
                let (version, base_log2) = (reader.u16()?, reader.u8()?);
                let proof = reader.optional()?.map(Proof::from_bytes);
                // Older senders end the message here.
                let run = if reader.0.is_empty() { None } else { Some(RunId::from_bytes(reader.array()?)) };
                Self::Hello { version, base_log2, proof, run }
            }
            0x02 => {
                let mut entries = Vec::new();
                while !reader.0.is_empty() {
                    entries.push(reader.entry()?);
                }
                Self::Entries(entries)
            }
            0x03 => {
                let count = reader.u32()?;
                // Older senders end the message here.
                let skipped = if reader.0.is_empty() { None } else { Some(reader.skipped()?) };
                Self::EntriesEnd { count, skipped }
            }
            0x04 => Self::FileDone { index: reader.u32()?, hash: FileHash::from_bytes(reader.array()?) },
            0x05 => Self::FileAbort { index: reader.u32()?, error: reader.file_error()? },
            0x06 => Self::Finish,
            0x07 => {
                let (index, size) = (reader.u32()?, reader.u64()?);
                Self::StreamEnd { index, size, hash: FileHash::from_bytes(reader.array()?) }
            }
            0x41 => {
                let version = reader.u16()?;
                Self::Accepted { version, proof: reader.optional()?.map(Proof::from_bytes) }
            }
            0x42 => Self::Refused { code: reader.u8()? },
            0x43 => {
                let index = reader.u32()?;
                let held = reader.take(reader.0.len())?.to_vec();
                if held.last() == Some(&0) {
                    return Err(Malformed("a segment set ends in a zero"));
                }
                Self::Plan { index, held }
            }
            0x44 => {
                let (index, bytes_done, bytes_total) = (reader.u32()?, reader.u64()?, reader.u64()?);
                Self::Verifying { index, bytes_done, bytes_total }
            }
            0x45 => Self::Done { index: reader.u32()?, hash: reader.optional()?.map(FileHash::from_bytes) },
            0x46 => Self::Failed { index: reader.u32()?, error: reader.file_error()? },
            0x47 => Self::Bye,
            0x48 => Self::Credit { index: reader.u32()?, pieces: reader.u32()? },
            0x49 => {
                let (index, code) = (reader.u32()?, reader.u8()?);
                let reason = LeftOutReason::from_code(code).ok_or(Malformed("an unknown reason to leave out"))?;
                Self::LeftOut { index, reason }
            }
            0x4a => Self::Deleted { is_dry_run: reader.flag()?, path: reader.path()? },
            0x4b => {
                let error = reader.file_error()?;
                Self::NotDeleted { error, path: reader.path()? }
            }
            0x4c => {
                let reason = NothingDeletedReason::from_code(reader.u8()?);
                Self::NothingDeleted { reason: reason.ok_or(Malformed("an unknown reason to delete nothing"))? }
            }
            0x7f => {
                let code = match reader.u8()? {
                    1 => StopCode::Cancelled,
                    2 => StopCode::Failed,
                    _ => return Err(Malformed("an unknown reason to stop")),
                };
                Self::Stop { code, reason: reader.text()? }
            }
            _ => return Err(Malformed("an unknown type of message")),
        })
    }
}

/// Returns the encoded length of `entry` in a message.
pub(crate) fn entry_len(entry: &Entry) -> usize {
    // A path of n components has n - 1 separators inside `len`; on the wire each component has a
    // length byte instead.
    let target = if let EntryKind::SymbolicLink { target } = &entry.kind { target.as_bytes().len() } else { 0 };
    ENTRY_FIXED_LEN_MAX + entry.path.len() + 1 + target
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    match &entry.kind {
        EntryKind::File { size } => {
            out.push(KIND_FILE);
            out.extend_from_slice(&size.to_be_bytes());
        }
        EntryKind::Directory => out.push(KIND_DIRECTORY),
        EntryKind::Stream => out.push(KIND_STREAM),
        EntryKind::SymbolicLink { target } => {
            out.push(KIND_SYMBOLIC_LINK);
            out.extend_from_slice(&(target.as_bytes().len() as u16).to_be_bytes());
            out.extend_from_slice(target.as_bytes());
        }
        EntryKind::HardLink { file } => {
            out.push(KIND_HARD_LINK);
            out.extend_from_slice(&file.to_be_bytes());
        }
        EntryKind::SparseFile { size, data } => {
            out.push(KIND_SPARSE_FILE);
            out.extend_from_slice(&size.to_be_bytes());
            out.extend_from_slice(&data.to_be_bytes());
        }
    }
    out.extend_from_slice(&entry.mode.to_be_bytes());
    out.extend_from_slice(&entry.modified.seconds.to_be_bytes());
    out.extend_from_slice(&entry.modified.nanoseconds.to_be_bytes());
    put_path(out, &entry.path);
}

fn put_path(out: &mut Vec<u8>, path: &RelativePath) {
    out.push(path.components().count() as u8);
    for component in path.components() {
        out.push(component.len() as u8);
        out.extend_from_slice(component);
    }
}

fn put_file_error(out: &mut Vec<u8>, error: &FileError) {
    out.push(error.kind.code());
    put_text(out, &error.detail);
}

fn put_optional(out: &mut Vec<u8>, value: Option<&[u8; 32]>) {
    out.push(u8::from(value.is_some()));
    out.extend_from_slice(value.map_or(&[], |bytes| bytes.as_slice()));
}

/// [`FileError::new`] already makes the text printable and bounds it. This applies the same rule to
/// values made in other ways.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = printable(text, DETAIL_LEN_MAX);
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed("a message is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn optional(&mut self) -> Result<Option<[u8; 32]>, Malformed> {
        Ok(if self.flag()? { Some(self.array()?) } else { None })
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let len = usize::from(self.u8()?);
        let text = std::str::from_utf8(self.take(len)?).map_err(|_| Malformed("a text is not UTF-8"))?;
        if len > DETAIL_LEN_MAX || text.contains(char::is_control) {
            return Err(Malformed("a text is too long or has control characters"));
        }
        Ok(text.to_owned())
    }

    fn skipped(&mut self) -> Result<SkippedCounts, Malformed> {
        Ok(SkippedCounts { links: self.u32()?, special: self.u32()?, unreadable: self.u32()? })
    }

    fn file_error(&mut self) -> Result<FileError, Malformed> {
        let kind = FileErrorKind::from_code(self.u8()?).ok_or(Malformed("an unknown kind of error"))?;
        Ok(FileError { kind, detail: self.text()? })
    }

    fn entry(&mut self) -> Result<Entry, Malformed> {
        let kind = match self.u8()? {
            KIND_FILE => EntryKind::File { size: self.u64()? },
            KIND_DIRECTORY => EntryKind::Directory,
            KIND_STREAM => EntryKind::Stream,
            KIND_SYMBOLIC_LINK => {
                let len = usize::from(self.u16()?);
                let target = LinkTarget::new(self.take(len)?).ok_or(Malformed("an impossible target of a link"))?;
                EntryKind::SymbolicLink { target }
            }
            KIND_HARD_LINK => EntryKind::HardLink { file: self.u32()? },
            KIND_SPARSE_FILE => {
                let (size, data) = (self.u64()?, self.u64()?);
                if data >= size {
                    return Err(Malformed("a file with holes has none"));
                }
                EntryKind::SparseFile { size, data }
            }
            _ => return Err(Malformed("an unknown kind of entry")),
        };
        let mode = self.u16()?;
        let modified = Modified { seconds: self.u64()? as i64, nanoseconds: self.u32()? };
        if mode > 0o777 || modified.nanoseconds >= 1_000_000_000 {
            return Err(Malformed("a mode or a time out of range"));
        }
        let path = self.path()?;
        if let EntryKind::SymbolicLink { target } = &kind
            && !target.stays_inside(&path)
        {
            return Err(Malformed("a link that leads out of its tree"));
        }
        Ok(Entry { path, kind, modified, mode })
    }

    fn path(&mut self) -> Result<RelativePath, Malformed> {
        let count = self.u8()?;
        let mut components = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let len = usize::from(self.u8()?);
            components.push(self.take(len)?);
        }
        // No correct peer sends a forbidden name, so this may be an attack: the transfer ends, not just
        // the file.
        RelativePath::from_components(components).map_err(|_| Malformed("a forbidden name"))
    }
}

/// The maximum length of a frame after its length field: the most that a peer can make us buffer
/// before decoding.
pub(crate) const FRAME_LEN_MAX: usize = 64 * 1024;

/// The approximate size of the entries in one message: a batch ends once it exceeds this.
pub(crate) const ENTRIES_LEN: usize = 32 * 1024;

const KIND_FILE: u8 = 0;
const KIND_DIRECTORY: u8 = 1;
const KIND_STREAM: u8 = 2;
const KIND_SYMBOLIC_LINK: u8 = 3;
const KIND_HARD_LINK: u8 = 4;
const KIND_SPARSE_FILE: u8 = 5;

/// Kind, sizes, mode, time and number of components.
const ENTRY_FIXED_LEN_MAX: usize = 1 + 16 + 2 + 8 + 4 + 1;

// The longest entry fits into a frame after a full batch, and so does a segment set.
const _: () = assert!(ENTRIES_LEN + ENTRY_FIXED_LEN_MAX + 2 * super::names::PATH_LEN_MAX + 2 <= FRAME_LEN_MAX);
const _: () = assert!(super::segment::SEGMENTS_MAX as usize / 8 + 5 <= FRAME_LEN_MAX);
const _: () = assert!(DETAIL_LEN_MAX <= u8::MAX as usize);
const _: () = assert!(super::names::COMPONENT_LEN_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests;
