//! Data and holes of files.

use std::fs::File;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Kind and length of the extent at an offset of a file: at least one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Data(u64),
    Hole(u64),
}

impl Extent {
    /// Returns the extent at `offset`. Everything counts as data if the file system cannot tell.
    pub(crate) fn at(file: &File, offset: u64) -> Self {
        match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Ok(data) if data > offset => Self::Hole(data - offset),
            // No data follows: the rest of the file is a hole.
            Err(Errno::NXIO) => Self::Hole(u64::MAX),
            _ => match rustix::fs::seek(file, SeekFrom::Hole(offset)) {
                Ok(hole) if hole > offset => Self::Data(hole - offset),
                _ => Self::Data(u64::MAX),
            },
        }
    }
}

/// Returns how many of the first `size` bytes of `file` are not in holes.
pub(crate) fn data_len(file: &File, size: u64) -> u64 {
    let (mut offset, mut data) = (0, 0);
    while offset < size {
        let left = size - offset;
        offset += match Extent::at(file, offset) {
            Extent::Hole(len) => len.min(left),
            Extent::Data(len) => {
                data += len.min(left);
                len.min(left)
            }
        };
    }
    data
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn data_are_what_is_not_in_holes() {
        let file = tempfile::tempfile().unwrap();
        let size = 10 << 20;
        file.set_len(size).unwrap();
        assert_eq!(data_len(&file, size), 0);
        assert_eq!(Extent::at(&file, 5), Extent::Hole(u64::MAX));
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        file.write_all_at(&[1; 8192], 5 << 20).unwrap();
        assert_eq!(data_len(&file, size), 12_288);
        assert_eq!(Extent::at(&file, 0), Extent::Hole(1 << 20));
        assert_eq!(Extent::at(&file, (1 << 20) + 96), Extent::Data(4000));
        // It was longer when it was listed.
        assert_eq!(data_len(&file, 2 << 20), 4096);
    }
}
