//! Errors of single files, after which the transfer continues, and errors of the whole transfer.
//! Every message states how to proceed.

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::Serialize;
use units::ByteSize;
use units::text::printable;

use super::limits::{ENTRIES_MAX, VERSION};
use super::store::Refusal;

/// The reason why one file or directory did not arrive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct FileError {
    /// The kind, which determines the message.
    pub kind: FileErrorKind,
    /// Details, possibly empty; at most [`DETAIL_LEN_MAX`] bytes, without control characters.
    pub detail: String,
}

/// Kinds of [`FileError`]. The numbers are those on the wire, except for
/// [`Special`](Self::Special) and [`Link`](Self::Link), which are never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[repr(u8)]
pub enum FileErrorKind {
    /// The receiver has another file with that name.
    Exists = 1,
    /// A directory is where a file should go, or a file where a directory should.
    Blocked = 2,
    /// The receiver refuses the name.
    Name = 3,
    /// A component of the target's path is a symbolic link.
    SymbolicLink = 4,
    /// One of the two hosts denies access.
    Permission = 5,
    /// The receiver's disk is full, or the file exceeds a limit of its file system.
    NoSpace = 6,
    /// The source was removed after it was listed.
    Vanished = 7,
    /// The source changed after its transfer began.
    SourceChanged = 8,
    /// Received bytes do not match their hash.
    Damaged = 9,
    /// Another transfer is writing the same file.
    Busy = 10,
    /// The receiver's file system failed.
    Target = 11,
    /// The sender's file system failed.
    Source = 12,
    /// Neither a file nor a directory. Reported on the sending side only: no message carries it.
    Special = 13,
    /// A symbolic link that is not sent. Reported on the sending side only.
    Link = 14,
}

/// The reason why a transfer did not complete.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransferError {
    /// The receiver refused this sender.
    Refused(Refusal),
    /// The receiver did not prove that it knows the ticket's secret.
    ReceiverUnproven,
    /// The receiver ignores the ticket's secret and accepts this sender because its list contains
    /// the sender's key, which the sender has to request
    /// ([`Credential::Key`](crate::Credential::Key)).
    KeysOnly,
    /// The connection was lost.
    Connection(io::Error),
    /// The peer violated the protocol; holds the violation.
    Protocol(&'static str),
    /// The peer uses another version of the protocol.
    Version(u16),
    /// The peer sent nothing in time, before it was authenticated.
    Silence,
    /// The transfer was cancelled on this side.
    Cancelled,
    /// The transfer was cancelled on the peer's side.
    CancelledByPeer,
    /// The peer ended the transfer permanently; holds its message.
    Peer(String),
    /// Nothing is left to send.
    NothingToSend,
    /// A path to send cannot be used.
    Path(PathBuf, io::Error),
    /// A path to send leads to an open pipe, or to a file that was removed.
    Nameless(PathBuf),
    /// A path to send has a name that cannot be sent.
    Name(PathBuf, super::names::NameError),
    /// Two paths to send would arrive under this one name.
    Duplicate(String),
    /// More files than a transfer may have.
    TooMany,
    /// The sender announces this many bytes, and the receiver takes this many in one transfer.
    TooLarge(u64, u64),
    /// The files need this many more bytes, and the receiver may store only this many.
    NoRoom(u64, u64),
    /// A stream turned out to be longer than this many bytes, the receiver's limit.
    StreamTooLong(u64),
    /// The receiver is too old for a file of unknown length.
    StreamUnsupported,
    /// The receiver is too old for links and files with holes.
    KeepUnsupported,
    /// The sender is too old for a receiver that leaves entries out or deletes.
    LeftOutUnsupported,
    /// The receiver writes to one output and was sent something other than one stream.
    StreamOnly,
    /// The sender listed this name, which was not requested.
    Unrequested(String),
    /// The output of a stream failed.
    Output(io::Error),
    /// A stream ended early for this reason. It cannot be resent, because its input was read.
    StreamBroken(Box<TransferError>),
    /// The target directory cannot be used.
    Directory(PathBuf, io::Error),
    /// The files are in place but the ticket could not be marked as spent.
    State(String),
    /// An option is out of range.
    Option(&'static str),
}

impl FileError {
    /// Creates an error of this kind, with `detail` truncated and without control characters.
    pub fn new(kind: FileErrorKind, detail: impl fmt::Display) -> Self {
        Self { kind, detail: printable(&detail.to_string(), DETAIL_LEN_MAX) }
    }

    /// Creates the error for a failed call on the receiver's file system.
    pub(crate) fn target(error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                FileErrorKind::NoSpace
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => FileErrorKind::Permission,
            io::ErrorKind::AlreadyExists => FileErrorKind::Exists,
            io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => FileErrorKind::Blocked,
            _ if is_loop(error) => FileErrorKind::SymbolicLink,
            _ => FileErrorKind::Target,
        };
        Self::new(kind, format_args!("receiver: {error}"))
    }

    /// Creates the error for a failed call on the sender's file system.
    pub(crate) fn source(error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => FileErrorKind::Vanished,
            io::ErrorKind::PermissionDenied => FileErrorKind::Permission,
            io::ErrorKind::IsADirectory => FileErrorKind::SourceChanged,
            _ if is_loop(error) => FileErrorKind::SourceChanged,
            _ => FileErrorKind::Source,
        };
        Self::new(kind, format_args!("sender: {error}"))
    }
}

impl FileErrorKind {
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the kind with this number; `None` for a number that this version does not know or
    /// never sends.
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Exists,
            2 => Self::Blocked,
            3 => Self::Name,
            4 => Self::SymbolicLink,
            5 => Self::Permission,
            6 => Self::NoSpace,
            7 => Self::Vanished,
            8 => Self::SourceChanged,
            9 => Self::Damaged,
            10 => Self::Busy,
            11 => Self::Target,
            12 => Self::Source,
            _ => return None,
        })
    }
}

impl TransferError {
    /// Converts the error for the transfer of a stream: one that the same command would resume
    /// becomes final.
    pub(crate) fn of_stream(self) -> Self {
        if self.is_resumable() { Self::StreamBroken(Box::new(self)) } else { self }
    }

    /// Returns the exit status of a command that ends with this error: 130 (as for an interrupt) if
    /// cancelled, otherwise 2. A completed transfer has its status in
    /// [`super::Summary::exit_code`].
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Cancelled => 130,
            Self::StreamBroken(reason) => reason.exit_code(),
            _ => 2,
        }
    }

    /// Returns whether a fault of this host ended the transfer and would end any other one, too.
    /// Otherwise a receiver can wait for another attempt.
    #[must_use]
    pub fn is_own_fault(&self) -> bool {
        match self {
            Self::Directory(..) | Self::State(_) | Self::Output(_) | Self::Option(_) => true,
            Self::StreamBroken(reason) => reason.is_own_fault(),
            _ => false,
        }
    }

    /// Returns whether the same command, run again unchanged, can resume the transfer: after a
    /// network failure or an interruption. Every other error would end the next attempt too, until
    /// the user changes something.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        matches!(self, Self::Connection(_) | Self::Cancelled | Self::CancelledByPeer | Self::Silence)
    }
}

impl fmt::Display for FileErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exists => {
                "the receiver has another file of that name: move it away, or start the receiver with --overwrite"
            }
            Self::Blocked => "a directory is in the way of a file or a file in the way of a directory: move it away",
            Self::Name => "the receiver refuses the name: rename the file",
            Self::SymbolicLink => "a symbolic link lies on the way to the target: replace it by a directory",
            Self::Permission => "permission denied",
            Self::NoSpace => "no space left on the receiver: free some and send again",
            Self::Vanished => "the file is gone since it was listed",
            Self::SourceChanged => "the file changed while it was being sent: send it again when it rests",
            Self::Damaged => "bytes arrived damaged and were discarded: send again, the rest is kept",
            Self::Busy => "another transfer is writing the same file: wait for it to end",
            Self::Target => "the receiver could not store the file",
            Self::Source => "the sender could not read the file",
            Self::Special => "neither a regular file nor a directory",
            Self::Link => "a symbolic link",
        })
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() { self.kind.fmt(f) } else { write!(f, "{} ({})", self.kind, self.detail) }
    }
}

impl std::error::Error for FileError {}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = ByteSize::from_bytes;
        match self {
            Self::Refused(refusal) => write!(f, "{refusal}"),
            // The command retries by itself for a while; it prints advice only at its end.
            Self::Connection(error) => write!(f, "the connection was lost ({error})"),
            Self::Protocol(what) => {
                write!(f, "the peer broke the protocol: {what}; use the same version of litz on both hosts")
            }
            Self::Version(version) => write!(
                f,
                "the peer speaks version {version} of the file protocol, we speak {}: use the same version of litz",
                VERSION
            ),
            Self::Peer(reason) => write!(f, "the other host ended the transfer: {reason}"),
            Self::Path(path, error) if error.kind() == io::ErrorKind::NotFound => {
                write!(f, "cannot send {}: there is no such file or directory; check the name", path.display())
            }
            Self::Path(path, error) => write!(f, "cannot send {}: {error}", path.display()),
            Self::Nameless(path) => {
                let path = path.display();
                write!(
                    f,
                    "cannot send {path}: it is an open pipe or a removed file, not a file with a name; send it as a \
                     stream, as with `litz send - --name NAME TICKET < {path}`"
                )
            }
            Self::Name(path, error) => write!(f, "cannot send {}: {error}", path.display()),
            Self::Duplicate(name) => {
                write!(f, "two paths have the same name, {name}: rename one, or send them in separate transfers")
            }
            Self::TooMany => write!(
                f,
                "a transfer has at most {} files and directories: send the directories one by one, or an archive",
                ENTRIES_MAX
            ),
            Self::TooLarge(bytes, bytes_max) => write!(
                f,
                "{} are to be sent, which is more than the {} that the receiver takes in one transfer",
                size(*bytes),
                size(*bytes_max)
            ),
            Self::NoRoom(growth, room) => write!(
                f,
                "{} more are to be stored, and the receiver has {} left for this sender: send less, or ask for more",
                size(*growth),
                size(*room)
            ),
            Self::StreamTooLong(bytes_max) => {
                write!(f, "the stream is longer than the {} that the receiver takes in one transfer", size(*bytes_max))
            }
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                write!(f, "the program that read the receiver's standard output ended before the transfer")
            }
            Self::Output(error) => write!(f, "the receiver cannot write to standard output: {error}"),
            Self::Unrequested(name) => {
                write!(f, "the sender wants to store {name}, which was not asked for: nothing of it was taken")
            }
            Self::StreamBroken(reason) => {
                reason.fmt_without_remedy(f)?;
                write!(f, "; a stream cannot be resumed: run the whole pipeline again")
            }
            Self::Directory(path, error) => write!(f, "cannot receive into {}: {error}", path.display()),
            Self::State(what) => {
                write!(f, "the files are in place, but the ticket could not be marked as used: {what}")
            }
            Self::ReceiverUnproven
            | Self::KeysOnly
            | Self::Silence
            | Self::Cancelled
            | Self::CancelledByPeer
            | Self::NothingToSend
            | Self::StreamUnsupported
            | Self::KeepUnsupported
            | Self::LeftOutUnsupported
            | Self::StreamOnly
            | Self::Option(_) => f.write_str(self.fixed_text()),
        }
    }
}

impl TransferError {
    /// Writes the message without the advice to resume, which a stream cannot be.
    fn fmt_without_remedy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => write!(f, "the connection was lost ({error})"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::CancelledByPeer => f.write_str("cancelled on the other host"),
            reason => write!(f, "{reason}"),
        }
    }

    /// Returns the message of an error without variable parts; empty for the others.
    const fn fixed_text(&self) -> &'static str {
        match self {
            Self::ReceiverUnproven => {
                "the receiver did not prove that it issued the ticket; nothing was sent: ask for a new ticket"
            }
            Self::KeysOnly => {
                "the receiver runs with --allow: it accepts this host by its key and not by a ticket; nothing was \
                 sent: run the same command again with --by-key"
            }
            Self::Silence => "the peer connected but sent nothing",
            Self::Cancelled => "cancelled: run the same command again to go on from here",
            Self::CancelledByPeer => "cancelled on the other host: run the same command again to go on from here",
            Self::NothingToSend => "there is nothing to send: name a file or a directory",
            Self::StreamUnsupported => {
                "the receiver is too old for a stream of unknown length: use the same version of litz on both hosts, \
                 or send a file"
            }
            Self::KeepUnsupported => {
                "the receiver is too old for links and files with holes: use the same version of litz on both hosts, \
                 or send without --keep"
            }
            Self::LeftOutUnsupported => {
                "the sender is too old for --update, --dry-run and --delete: use the same version of litz on both \
                 hosts, or receive without these options"
            }
            Self::StreamOnly => {
                "the receiver writes to standard output, so it takes one stream and no files: send `-`, as in \
                 `tar c DIR | litz send - TICKET`, with the same version of litz"
            }
            Self::Option(what) => what,
            _ => "",
        }
    }
}

impl std::error::Error for TransferError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connection(error) | Self::Path(_, error) | Self::Directory(_, error) => Some(error),
            Self::Refused(refusal) => Some(refusal),
            Self::StreamBroken(reason) => Some(&**reason),
            Self::Output(error) => Some(error),
            _ => None,
        }
    }
}

/// ELOOP: the error of opening a symbolic link when links are not followed.
fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// The maximum length of free text from a peer, in bytes.
pub const DETAIL_LEN_MAX: usize = 200;
