//! Reads files whose size nobody can be sure of.
//!
//! Sizes lie: files grow and shrink while they are read, have holes of a tebibyte, or, as
//! those of `/proc`, say zero. So bytes are counted as they come, every reading has a
//! bound, and nothing is mapped into memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use super::beneath::{Meta, Opened};
use super::refused::FileError;

/// Bytes that are read at a time.
pub const CHUNK_BYTES_MAX: usize = 64 * 1024;

impl Meta {
    /// Returns what tells this content of a file from others, as an `ETag` has it without
    /// its quotes.
    ///
    /// It is made of the inode, the size and the times of the last change of content and
    /// of inode, so it costs nothing for a file of any size, and a sandbox cannot set the
    /// latter time. It also changes where the content did not, as by a `chmod`. Each
    /// write from here makes a new inode. What it cannot tell: two changes in place by
    /// the sandbox within one tick of the kernel's clock that leave the size.
    pub fn etag(&self) -> String {
        format!(
            "{:x}-{:x}-{:x}.{:x}-{:x}.{:x}",
            self.identity.1,
            self.size,
            self.modified_secs,
            self.modified_nanos,
            self.changed_secs,
            self.changed_nanos
        )
    }
}

impl Opened {
    /// Reads the whole file, provided that it has at most so many bytes.
    pub fn read_whole(&self, bytes_max: u64) -> Result<Vec<u8>, FileError> {
        let too_large = |bytes| FileError::TooLarge {
            bytes,
            limit: bytes_max,
        };
        if bytes_max < self.meta.size {
            return Err(too_large(self.meta.size));
        }
        // One more than it says it has, so that its end is seen without a further buffer.
        let room = usize::try_from(self.meta.size).unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(room.saturating_add(1));
        loop {
            if bytes.capacity() == bytes.len() {
                // Not a byte more than it takes to see that there are too many.
                let left = bytes_max.saturating_sub(len(&bytes)).saturating_add(1);
                let left = usize::try_from(left).unwrap_or(usize::MAX);
                bytes.reserve_exact(left.min(CHUNK_BYTES_MAX.max(bytes.len())));
            }
            let at = len(&bytes);
            match rustix::io::pread(&self.file, spare_capacity(&mut bytes), at) {
                Ok(0) => return Ok(bytes),
                Ok(_) if bytes_max < len(&bytes) => return Err(too_large(len(&bytes))),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads at most so many bytes from an offset on; fewer where the file ends before.
    pub fn read_range(&self, from: u64, bytes: usize) -> Result<Vec<u8>, FileError> {
        let until = from.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        let mut range = Vec::new();
        for chunk in self.chunks(from, until) {
            range.extend_from_slice(&chunk?);
        }
        Ok(range)
    }

    /// Returns the bytes of a range in pieces, each of at most [`CHUNK_BYTES_MAX`].
    ///
    /// What a growing file gets behind `until` is not among them; where the file ends
    /// before, so do they.
    pub fn chunks(&self, from: u64, until: u64) -> Chunks<'_> {
        Chunks {
            file: &self.file,
            from,
            until,
        }
    }
}

/// The pieces of a range of a file.
#[derive(Debug)]
pub struct Chunks<'a> {
    file: &'a File,
    from: u64,
    until: u64,
}

impl Chunks<'_> {
    /// Reads the next piece to a buffer; returns its length, zero at the end.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        let left = usize::try_from(self.until.saturating_sub(self.from)).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        let buffer = buffer.get_mut(..wanted).unwrap_or_default();
        let mut n_read = 0;
        while let Some(rest) = buffer.get_mut(n_read..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, self.from) {
                Ok(0) => break,
                Ok(n) => {
                    n_read += n;
                    self.from = self.from.saturating_add(u64::try_from(n).unwrap_or(0));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // No file is that long.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(n_read)
    }

    /// Returns whether everything up to the bound was read.
    pub fn is_at_bound(&self) -> bool {
        self.until <= self.from
    }
}

impl Iterator for Chunks<'_> {
    type Item = Result<Vec<u8>, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        let left = usize::try_from(self.until.saturating_sub(self.from)).unwrap_or(usize::MAX);
        let mut chunk = vec![0; left.min(CHUNK_BYTES_MAX)];
        match self.fill(&mut chunk) {
            Ok(0) => None,
            Ok(n_read) => {
                chunk.truncate(n_read);
                Some(Ok(chunk))
            }
            Err(error) => {
                self.until = self.from;
                Some(Err(error))
            }
        }
    }
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn opened(file: File) -> Opened {
        let meta = Meta::of(&rustix::fs::fstat(&file).unwrap());
        Opened { file, meta }
    }

    #[test]
    fn a_whole_file_has_at_most_the_bytes_that_are_allowed() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 100_000]).unwrap();
        let opened = opened(file);
        assert_eq!(opened.read_whole(100_000).unwrap(), vec![7; 100_000]);
        let error = opened.read_whole(99_999).unwrap_err();
        assert!(matches!(
            error,
            FileError::TooLarge {
                bytes: 100_000,
                limit: 99_999
            }
        ));
        assert_eq!(opened.read_range(99_990, 100).unwrap().len(), 10);
        assert_eq!(opened.read_range(10, 70_000).unwrap().len(), 70_000);
        assert!(opened.read_range(u64::MAX, 10).unwrap().is_empty());
        assert!(opened.read_range(0, 0).unwrap().is_empty());
    }

    #[test]
    fn a_file_that_grows_or_shrinks_is_read_as_far_as_it_goes() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 10]).unwrap();
        let opened = opened(file.try_clone().unwrap());
        file.write_all(&[2; 90]).unwrap();
        assert_eq!(opened.read_whole(100).unwrap().len(), 100);
        let error = opened.read_whole(50).unwrap_err();
        assert!(matches!(
            error,
            FileError::TooLarge {
                bytes: 51,
                limit: 50
            }
        ));
        let told: usize = opened.chunks(0, 10).map(|chunk| chunk.unwrap().len()).sum();
        assert_eq!(told, 10, "not a byte behind what was said before");
        file.set_len(3).unwrap();
        assert_eq!(opened.read_whole(100).unwrap(), [1; 3]);
        assert_eq!(opened.chunks(5, 10).count(), 0);
    }

    #[test]
    fn a_hole_of_a_tebibyte_costs_what_is_read_of_it() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        let opened = opened(file);
        assert_eq!(opened.meta.disk_bytes, 0);
        let error = opened.read_whole(8 << 20).unwrap_err();
        assert!(matches!(error, FileError::TooLarge { bytes, .. } if bytes == 1 << 40));
        assert_eq!(opened.read_range((1 << 40) - 3, 9).unwrap(), [0; 3]);
    }

    #[test]
    fn a_file_that_says_it_is_empty_is_read_all_the_same() {
        let opened = opened(File::open("/proc/self/status").unwrap());
        assert_eq!(opened.meta.size, 0);
        assert!(opened.read_whole(1 << 20).unwrap().starts_with(b"Name:"));
    }
}
