//! Writes the headers of an archive's members, in GNU's format.

use tar::{EntryType, Header};

use crate::workspace::Meta;

/// An archive is a row of blocks of this size.
pub(super) const BLOCK_BYTES: usize = 512;
/// The same, where bytes of files are counted.
pub(super) const BLOCK: u64 = 512;
/// A header has room for names of so many bytes; longer ones go before it.
const NAME_BYTES: usize = 100;
/// What GNU's tar calls a member that holds a long name.
const LONG_NAME: &[u8] = b"././@LongLink";

/// A member as its header has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<'a> {
    pub(super) path: &'a [u8],
    pub(super) kind: EntryType,
    pub(super) link: &'a [u8],
    pub(super) size: u64,
}

impl Written<'_> {
    /// Returns the header's blocks, with those of long names before it.
    pub(super) fn blocks(&self, meta: &Meta) -> Vec<u8> {
        let mut blocks = Vec::with_capacity(BLOCK_BYTES);
        if NAME_BYTES < self.path.len() {
            long(&mut blocks, EntryType::GNULongName, self.path);
        }
        if NAME_BYTES < self.link.len() {
            long(&mut blocks, EntryType::GNULongLink, self.link);
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(self.kind);
        header.set_size(self.size);
        // Bits above these would make a file act with its owner's rights.
        header.set_mode(meta.mode & 0o777);
        header.set_uid(meta.owner.uid.into());
        header.set_gid(meta.owner.gid.into());
        header.set_mtime(u64::try_from(meta.modified_secs).unwrap_or(0));
        names(&mut header, self.path, self.link);
        blocks.extend_from_slice(header.as_bytes());
        blocks
    }
}

fn long(blocks: &mut Vec<u8>, kind: EntryType, name: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    let size = name.len() + 1;
    header.set_size(u64::try_from(size).unwrap_or(u64::MAX));
    names(&mut header, LONG_NAME, b"");
    blocks.extend_from_slice(header.as_bytes());
    blocks.extend_from_slice(name);
    blocks.push(0);
    blocks.resize(blocks.len().next_multiple_of(BLOCK_BYTES), 0);
}

/// Sets the names, as much of them as there is room for, and seals the header.
fn names(header: &mut Header, path: &[u8], link: &[u8]) {
    let fields = header.as_old_mut();
    for (field, name) in [(&mut fields.name, path), (&mut fields.linkname, link)] {
        for (to, from) in field.iter_mut().zip(name) {
            *to = *from;
        }
    }
    header.set_cksum();
}
