//! Reads the members of an archive that may be hostile.
//!
//! Read are ustar, GNU's long names and pax; a field that is written twice counts as the
//! later of pax, long name and header. What other readers take in different ways, such as
//! content of a link, is refused, so that nobody sees two archives in one.

use std::io::Read;

use tar::{EntryType, Header};

use super::header::{BLOCK, BLOCK_BYTES};
use super::refusal::{ImportError, Limit};

/// Names and pax notes before one member have at most so many bytes together.
const NOTES_BYTES_MAX: u64 = 256 << 10;

/// A member of an archive, whose bytes are read next.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) path: Vec<u8>,
    pub(super) kind: MemberKind,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) modified_secs: i64,
}

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemberKind {
    File,
    Directory,
    Link(Vec<u8>),
    HardLink(Vec<u8>),
    /// A device or a FIFO.
    Special,
}

/// What was said before a header about the member that it is of.
#[derive(Debug, Default)]
struct Notes {
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Pax,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Pax {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    modified_secs: Option<i64>,
}

/// The members of an archive, one after the other.
pub(super) struct Members<R> {
    source: R,
    /// Bytes of the present member that were not read.
    left: u64,
    padding: u64,
    n_headers: u64,
    headers_max: u64,
}

impl<R: Read> Members<R> {
    pub(super) fn new(source: R, headers_max: u64) -> Self {
        Self {
            source,
            left: 0,
            padding: 0,
            n_headers: 0,
            headers_max,
        }
    }

    /// Goes to the next member, past what was not read of the present one.
    pub(super) fn next(&mut self) -> Result<Option<Member>, ImportError> {
        let mut notes = Notes::default();
        loop {
            self.pass_rest()?;
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let size = header
                .entry_size()
                .map_err(|_| ImportError::Damaged("a size"))?;
            match header.entry_type() {
                EntryType::GNULongName => {
                    notes.long_name = Some(self.name(&mut notes.bytes, size)?);
                }
                EntryType::GNULongLink => {
                    notes.long_link = Some(self.name(&mut notes.bytes, size)?);
                }
                EntryType::XHeader => {
                    let data = self.note(&mut notes.bytes, size)?;
                    notes.pax = pax(&data)?;
                }
                EntryType::XGlobalHeader => {
                    let data = self.note(&mut notes.bytes, size)?;
                    let Pax {
                        path,
                        link,
                        size,
                        modified_secs: _,
                    } = pax(&data)?;
                    if path.is_some() || link.is_some() || size.is_some() {
                        return Err(ImportError::Unsupported("it names all its members alike"));
                    }
                }
                kind => return self.member(kind, &header, notes).map(Some),
            }
        }
    }

    /// Reads the present member's bytes; nothing at their end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ImportError> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX);
        let wanted = wanted.min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        let buffer = buffer.get_mut(..wanted).unwrap_or_default();
        let n_read = self.source.read(buffer).map_err(ImportError::of)?;
        if n_read == 0 {
            return Err(ImportError::Truncated);
        }
        self.left = self
            .left
            .saturating_sub(u64::try_from(n_read).unwrap_or(u64::MAX));
        Ok(n_read)
    }

    /// Reads what follows the last member, to no end.
    pub(super) fn drain(&mut self) -> Result<(), ImportError> {
        std::io::copy(&mut self.source, &mut std::io::sink())
            .map(drop)
            .map_err(ImportError::of)
    }

    fn member(
        &mut self,
        kind: EntryType,
        header: &Header,
        notes: Notes,
    ) -> Result<Member, ImportError> {
        let size = match notes.pax.size {
            Some(size) => size,
            None => header
                .entry_size()
                .map_err(|_| ImportError::Damaged("a size"))?,
        };
        self.expect(size)?;
        let path = notes.pax.path.or(notes.long_name);
        let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = notes.pax.link.or(notes.long_link);
        let link = || {
            let own = || header.link_name_bytes().map(std::borrow::Cow::into_owned);
            link.or_else(own).unwrap_or_default()
        };
        let kind = match kind {
            // Of old, a directory was a file whose name ends with a slash.
            EntryType::Regular if path.ends_with(b"/") => MemberKind::Directory,
            EntryType::Regular | EntryType::Continuous => MemberKind::File,
            EntryType::Directory => MemberKind::Directory,
            EntryType::Symlink => MemberKind::Link(link()),
            EntryType::Link => MemberKind::HardLink(link()),
            EntryType::Char | EntryType::Block | EntryType::Fifo => MemberKind::Special,
            EntryType::GNUSparse => {
                return Err(ImportError::Unsupported(
                    "it has files with holes: pack it without --sparse",
                ));
            }
            _ => {
                return Err(ImportError::Unsupported(
                    "it has members of an unknown kind",
                ));
            }
        };
        if size != 0 && kind != MemberKind::File {
            return Err(ImportError::Unsupported(
                "a member that is no file has content",
            ));
        }
        let header_time = header
            .mtime()
            .ok()
            .and_then(|secs| i64::try_from(secs).ok());
        Ok(Member {
            path,
            kind,
            size,
            mode: header.mode().map_err(|_| ImportError::Damaged("a mode"))?,
            modified_secs: notes.pax.modified_secs.or(header_time).unwrap_or(0),
        })
    }

    /// Reads a header; nothing at the end of the archive.
    fn header(&mut self) -> Result<Option<Header>, ImportError> {
        self.n_headers += 1;
        if self.headers_max < self.n_headers {
            return Err(ImportError::TooMuch {
                what: Limit::Entries,
                limit: self.headers_max,
            });
        }
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        self.source.read_exact(block).map_err(ImportError::of)?;
        if block.iter().all(|byte| *byte == 0) {
            // Two blocks of zeros end an archive; readers take one for it.
            return Ok(None);
        }
        let told = header.cksum().ok();
        if told != Some(checksum(header.as_bytes())) {
            return Err(ImportError::Damaged("a header"));
        }
        Ok(Some(header))
    }

    fn expect(&mut self, size: u64) -> Result<(), ImportError> {
        let rounded = size
            .checked_next_multiple_of(BLOCK)
            .ok_or(ImportError::Damaged("a size"))?;
        self.left = size;
        self.padding = rounded - size;
        Ok(())
    }

    fn pass_rest(&mut self) -> Result<(), ImportError> {
        let mut buffer = [0; 8 * BLOCK_BYTES];
        self.left = self
            .left
            .checked_add(self.padding)
            .ok_or(ImportError::Damaged("a size"))?;
        self.padding = 0;
        while self.read(&mut buffer)? != 0 {}
        Ok(())
    }

    /// Reads a note on the member that comes, of which all together are bounded.
    fn note(&mut self, bytes: &mut u64, size: u64) -> Result<Vec<u8>, ImportError> {
        *bytes = bytes.saturating_add(size);
        if NOTES_BYTES_MAX < *bytes {
            return Err(ImportError::TooMuch {
                what: Limit::Notes,
                limit: NOTES_BYTES_MAX,
            });
        }
        self.expect(size)?;
        let mut data = vec![0; usize::try_from(size).unwrap_or(0)];
        self.source.read_exact(&mut data).map_err(ImportError::of)?;
        self.left = 0;
        Ok(data)
    }

    fn name(&mut self, bytes: &mut u64, size: u64) -> Result<Vec<u8>, ImportError> {
        let mut name = self.note(bytes, size)?;
        while name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }
}

/// Adds up a header's bytes, with blanks for the sum itself.
fn checksum(block: &[u8; BLOCK_BYTES]) -> u32 {
    let own = 148..156;
    let counted = |(at, byte): (usize, &u8)| {
        let byte = if own.contains(&at) { b' ' } else { *byte };
        u32::from(byte)
    };
    block.iter().enumerate().map(counted).sum()
}

/// Reads pax records, `<length> <key>=<value>\n` each; a value may hold line ends.
fn pax(data: &[u8]) -> Result<Pax, ImportError> {
    const BROKEN: ImportError = ImportError::Damaged("a pax record");
    let mut pax = Pax::default();
    let mut rest = data;
    while !rest.is_empty() {
        let blank = rest.iter().position(|byte| *byte == b' ').ok_or(BROKEN)?;
        let length: usize = number(rest.get(..blank).unwrap_or_default()).ok_or(BROKEN)?;
        let record = rest.get(blank + 1..length).ok_or(BROKEN)?;
        let record = record.strip_suffix(b"\n").ok_or(BROKEN)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(BROKEN)?;
        let (key, value) = record.split_at(equals);
        let value = value.get(1..).unwrap_or_default();
        match key {
            b"path" => pax.path = Some(value.to_vec()),
            b"linkpath" => pax.link = Some(value.to_vec()),
            b"size" => pax.size = Some(number(value).ok_or(BROKEN)?),
            b"mtime" => {
                let whole = value.split(|byte| *byte == b'.').next();
                pax.modified_secs = number(whole.unwrap_or_default());
            }
            key if key.starts_with(b"GNU.sparse.") => {
                return Err(ImportError::Unsupported(
                    "it has files with holes: pack it without --sparse",
                ));
            }
            _ => {}
        }
        rest = rest.get(length..).ok_or(BROKEN)?;
    }
    Ok(pax)
}

fn number<N: std::str::FromStr>(digits: &[u8]) -> Option<N> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(key: &str, value: &str) -> Vec<u8> {
        let body = format!(" {key}={value}\n");
        let mut length = body.len() + 1;
        while length != body.len() + length.to_string().len() {
            length += 1;
        }
        format!("{length}{body}").into_bytes()
    }

    #[test]
    fn pax_records_are_read_by_their_lengths() {
        let data = [
            record("path", "a\nb=c d"),
            record("size", "12345678901"),
            record("mtime", "1700000000.25"),
            record("SCHILY.xattr.user.x", "whatever"),
        ]
        .concat();
        let read = pax(&data).unwrap();
        assert_eq!(read.path.as_deref(), Some(&b"a\nb=c d"[..]));
        assert_eq!(
            (read.size, read.modified_secs),
            (Some(12_345_678_901), Some(1_700_000_000))
        );
        for broken in [
            "x",
            "5",
            "99 a=b\n",
            "0 a=b\n",
            "6 a=bc",
            "7 abcd\n",
            "18446744073709551615 a=b\n",
        ] {
            assert!(pax(broken.as_bytes()).is_err(), "{broken:?}");
        }
        assert!(pax(&record("GNU.sparse.major", "1")).is_err());
        assert!(pax(&record("size", "-1")).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_pax_record_or_an_archive_panic(
            data in proptest::collection::vec(any::<u8>(), 0..2_000),
        ) {
            let read = pax(&data);
            prop_assert!(read.is_ok() || read.is_err());
            let mut members = Members::new(data.as_slice(), 10);
            while let Ok(Some(member)) = members.next() {
                prop_assert!(member.size < u64::MAX);
            }
        }

        #[test]
        fn a_header_with_any_field_changed_never_panics(
            changes in proptest::collection::vec((0_usize..512, any::<u8>()), 0..8),
            kind in any::<u8>(),
        ) {
            let mut header = Header::new_gnu();
            header.set_size(700);
            header.set_mode(0o644);
            for (at, byte) in changes {
                header.as_mut_bytes()[at] = byte;
            }
            header.as_mut_bytes()[156] = kind;
            header.set_cksum();
            let mut data = header.as_bytes().to_vec();
            data.resize(4 * BLOCK_BYTES, 0);
            let mut members = Members::new(data.as_slice(), 10);
            while let Ok(Some(member)) = members.next() {
                prop_assert!(member.size < u64::MAX);
            }
        }
    }
}
