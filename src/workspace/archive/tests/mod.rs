//! Archives held against the system's `tar` and `zstd`, and against hostile hands.

mod export;
mod hostile;
mod round;

use std::io::Read as _;
use std::path::Path;

use tar::{EntryType, Header};

use super::{Export, ExportBounds, Format, ImportBounds, ImportError, Imported, import};
use crate::workspace::Dir;
use crate::workspace::search::patience::testing;
use crate::workspace::search::tests::root;

const EXPORT: ExportBounds = ExportBounds {
    reach: testing::FAR,
    bytes: 1 << 30,
};
const IMPORT: ImportBounds = ImportBounds {
    entries: 100_000,
    bytes: 1 << 30,
    sent_bytes: 1 << 30,
    ratio: 1_000,
};

fn begin(dir: &Path, format: Format) -> Export {
    /// A body of a reply goes from thread to thread.
    fn movable<T: Send + 'static>(it: T) -> T {
        it
    }
    movable(Export::begin(&root(dir), format, EXPORT, testing::long()).unwrap())
}

fn packed(dir: &Path, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    begin(dir, format).read_to_end(&mut bytes).unwrap();
    bytes
}

fn unpacked(bytes: &[u8], format: Format, into: &Dir) -> Result<Imported, ImportError> {
    import(bytes, format, (into, None), &IMPORT, &testing::long())
}

/// A member as a hostile hand would write it.
fn member(path: &[u8], kind: u8, link: &[u8], content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::new(kind));
    header.set_size(content.len().try_into().unwrap());
    header.set_mode(0o6755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1_600_000_000);
    let fields = header.as_old_mut();
    fields.name[..path.len()].copy_from_slice(path);
    fields.linkname[..link.len()].copy_from_slice(link);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(path: &str, content: &[u8]) -> Vec<u8> {
    member(path.as_bytes(), b'0', b"", content)
}

/// Ends an archive.
fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = members.concat();
    bytes.resize(bytes.len() + 1_024, 0);
    bytes
}
