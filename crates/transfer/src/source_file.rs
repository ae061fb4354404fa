//! A file being read for sending, and the proof that the data read are the file's state at one
//! time.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::error::{FileError, FileErrorKind};
use crate::extent::Extent;
use crate::manifest::Entry;
use crate::measure::{Content, ends_at};
use crate::stamp::{Change, Stamp};

/// An open source.
pub(crate) struct SourceFile(Bytes);

enum Bytes {
    Disk {
        file: File,
        /// State before the first byte was read.
        stamp: Stamp,
        /// Measured length, if the file system may report another one.
        measured: Option<u64>,
    },
    /// Bytes read when the file was listed.
    Held(Arc<[u8]>),
}

impl SourceFile {
    /// Opens the file at `path` and checks that it is the one listed as `entry`.
    pub(crate) fn open(path: &Path, entry: &Entry, content: Content) -> Result<Self, FileError> {
        let stated = match content {
            Content::Held(bytes) => return Ok(Self(Bytes::Held(bytes))),
            Content::File => entry.size().unwrap_or_default(),
            Content::Measured { stated } => stated,
        };
        // Non-blocking, because a pipe that replaced the file must not block the thread.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = file.map_err(|error| FileError::source(&error))?;
        let is_file = file.metadata().map_err(|error| FileError::source(&error))?.is_file();
        let stamp = settled(&file)?;
        // Times of files generated while they are read are meaningless.
        let modified = (Some(stated) == entry.size()).then_some(entry.modified);
        if !is_file || !stamp.is_listed(stated, modified) {
            return Err(FileError::new(FileErrorKind::SourceChanged, ""));
        }
        let measured = matches!(content, Content::Measured { .. }).then(|| entry.size()).flatten();
        Ok(Self(Bytes::Disk { file, stamp, measured }))
    }

    /// Fills `bytes` from `offset`. A file that ends earlier was truncated after it was listed.
    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), FileError> {
        let shorter = || FileError::new(FileErrorKind::SourceChanged, "it became shorter");
        match &self.0 {
            Bytes::Disk { file, .. } => file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => shorter(),
                _ => FileError::source(&error),
            }),
            Bytes::Held(held) => {
                let start = offset as usize;
                bytes.copy_from_slice(held.get(start..start + bytes.len()).ok_or_else(shorter)?);
                Ok(())
            }
        }
    }

    /// Returns the data or hole at `offset`.
    pub(crate) fn extent_at(&self, offset: u64) -> Extent {
        match &self.0 {
            Bytes::Disk { file, .. } => Extent::at(file, offset),
            Bytes::Held(_) => Extent::Data(u64::MAX),
        }
    }

    /// Ensures that the data read are the file's state at one time. If only its status changed
    /// since it was opened, `is_same` compares the whole content with the data read. Returns false
    /// if `is_same` returns `None`, because the transfer stops.
    ///
    /// # Errors
    /// Fails if the file changed.
    pub(crate) fn confirm(&self, is_same: &dyn Fn() -> Result<Option<bool>, FileError>) -> Result<bool, FileError> {
        let Bytes::Disk { file, stamp, measured } = &self.0 else { return Ok(true) };
        let source = |error: io::Error| FileError::source(&error);
        let changed = |detail: &str| FileError::new(FileErrorKind::SourceChanged, detail);
        if let Some(size) = measured
            && !ends_at(file, *size).map_err(source)?
        {
            return Err(changed("it has another length at each reading"));
        }
        let now = || file.metadata().map(|metadata| Stamp::of(&metadata)).map_err(source);
        let mut change = stamp.change_to(&now()?);
        for _ in 0..READINGS_MAX {
            match change {
                Change::None => return Ok(true),
                Change::Content => return Err(changed("")),
                // Another program has linked it or changed its mode, or has written to it and set its time
                // back.
                Change::Status => {}
            }
            let before = settled(file)?;
            match is_same()? {
                Some(true) => change = before.change_to(&now()?),
                Some(false) => return Err(changed("and its time was set back")),
                None => return Ok(false),
            }
        }
        if change == Change::None { Ok(true) } else { Err(changed("its status changes all the time")) }
    }
}

fn settled(file: &File) -> Result<Stamp, FileError> {
    let stamp = Stamp::settled(file).map_err(|error| FileError::source(&error))?;
    stamp.ok_or_else(|| FileError::new(FileErrorKind::SourceChanged, "it changes all the time"))
}

/// Number of times that a file with a changing status is read again.
const READINGS_MAX: u32 = 3;
