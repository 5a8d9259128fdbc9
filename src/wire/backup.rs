//! The frame of a backup: lines of JSON between a header and a footer with their digest.
//!
//! ```text
//! {"header":{"format":"sandboxd-backup","version":1, … }}
//! {"session": … }                                          any number of rows
//! {"footer":{"lines":3,"sha256":" … of every byte before this line"}}
//! ```
//!
//! What a row is, is the store's affair. Here it is only made sure that all of them are
//! there, as they were written.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::clock::Timestamp;
use crate::secret::hex;

/// What the header of every backup begins with.
pub const FORMAT: &str = "sandboxd-backup";
/// The version of the frame and of the rows that this build writes.
pub const VERSION: u32 = 1;
/// Bytes of the longest line: twice what the store keeps in one value.
pub const LINE_BYTES_MAX: usize = 128 << 10;
/// Bytes of the largest backup that is read.
pub const BACKUP_BYTES_MAX: u64 = 1 << 30;

/// Says what a backup is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`FORMAT`].
    pub format: String,
    /// The version of the frame and of the rows.
    pub version: u32,
    /// The version of the store's layout that the rows come from.
    pub schema: u32,
    /// The version of the program that wrote it, for people.
    pub program: String,
    /// Marks everything that the state directory owns.
    pub instance: String,
    /// When the store was as the backup says, in microseconds since the epoch.
    pub taken_at: Timestamp,
    /// The number of the last commit that it holds.
    pub commit: u64,
    /// The engine that the containers live on, once one was seen.
    pub engine_id: Option<String>,
    /// The name of the key that tokens are derived from, once one was used.
    pub token_key_id: Option<String>,
    /// The highest place in the order of opening given out so far.
    pub order: u64,
    /// How many rows there are of each kind.
    pub counts: Counts,
}

/// How many rows there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Records of sessions.
    pub sessions: u64,
    /// Statuses of sessions.
    pub statuses: u64,
    /// Runs in the background.
    pub runs: u64,
    /// Logs, of which only their ends are in a backup.
    pub logs: u64,
    /// Keys: 1 where the token key is in it.
    pub keys: u64,
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Footer {
    /// Lines before this one.
    lines: u64,
    /// Of all bytes before this line, in hex.
    sha256: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Edge {
    Header(Header),
    Footer(Footer),
}

/// Says why something is no whole backup. Lines are counted from 1.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// There is nothing.
    #[error("read the backup: it is empty")]
    Empty,
    /// The end is missing.
    #[error("read the backup: it ends with line {line}, which is no whole footer: it was cut off")]
    CutOff {
        /// The last line there is.
        line: usize,
    },
    /// A line is not JSON.
    #[error("read line {line} of the backup: it was damaged")]
    NotJson {
        /// Which.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// A line is longer than any that is written.
    #[error(
        "read line {line} of the backup: it has {bytes} bytes, and none has more than {LINE_BYTES_MAX}"
    )]
    TooLong {
        /// Which.
        line: usize,
        /// Its size.
        bytes: usize,
    },
    /// Lines were added or lost.
    #[error(
        "read the backup: its footer, line {line}, counts {wanted} lines before it: some were lost or added"
    )]
    Lines {
        /// The footer.
        line: usize,
        /// How many there should be.
        wanted: u64,
    },
    /// Something was changed, and every line still reads as one.
    #[error(
        "read the backup: the digest in its footer, line {line}, is not that of the lines before it: one of them was changed"
    )]
    Digest {
        /// The footer.
        line: usize,
    },
    /// It is something else.
    #[error("read line 1 of the backup: it is not the header of a backup of sandboxd")]
    NotOurs,
    /// A later version of this program wrote it.
    #[error(
        "read a backup of version {found}: this build knows version {VERSION}; restore it with the version that wrote it, or a later one"
    )]
    Newer {
        /// Its version.
        found: u32,
    },
}

/// A backup whose lines are all there, as they were written.
#[derive(Debug)]
pub struct Sound<'a> {
    /// What it is of.
    pub header: Header,
    /// The rows, each with the number of its line.
    pub rows: Vec<(usize, &'a [u8])>,
}

/// Puts the frame around rows, one line after the other.
#[derive(Debug)]
pub struct Seal {
    digest: Sha256,
    n_lines: u64,
}

impl Seal {
    /// Begins with the header; returns its line too.
    pub fn begin(header: Header) -> (Self, Vec<u8>) {
        let mut seal = Self {
            digest: Sha256::new(),
            n_lines: 0,
        };
        let line = seal.line(&Edge::Header(header));
        (seal, line)
    }

    /// Returns the line of a row, with its end.
    pub fn line<T: Serialize>(&mut self, row: &T) -> Vec<u8> {
        let line = text_of(row);
        self.digest.update(&line);
        self.n_lines += 1;
        line
    }

    /// Returns the last line.
    pub fn end(self) -> Vec<u8> {
        text_of(&Edge::Footer(Footer {
            lines: self.n_lines,
            sha256: hex(&self.digest.finalize()),
        }))
    }
}

/// Makes sure that a backup is whole and unchanged, and parts it into its lines.
///
/// The digest comes first: nothing of what is damaged is understood at all.
pub fn open(bytes: &[u8]) -> Result<Sound<'_>, Damage> {
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let (last, before) = lines.split_last().ok_or(Damage::Empty)?;
    let line = lines.len();
    // As it would be written, to the byte: nothing else covers the footer itself.
    let footer = match serde_json::from_slice(last) {
        Ok(Edge::Footer(footer)) => footer,
        Ok(Edge::Header(_)) | Err(_) => return Err(Damage::CutOff { line }),
    };
    if *last != text_of(&Edge::Footer(footer.clone())) {
        return Err(Damage::CutOff { line });
    }
    if u64::try_from(before.len()).ok() != Some(footer.lines) {
        let wanted = footer.lines;
        return Err(Damage::Lines { line, wanted });
    }
    let covered = bytes.len() - last.len();
    let digest = Sha256::digest(bytes.get(..covered).unwrap_or_default());
    if hex(&digest) != footer.sha256 {
        return Err(first_damaged(before).unwrap_or(Damage::Digest { line }));
    }
    if let Some(too_long) = first_damaged(before) {
        return Err(too_long);
    }
    let (first, rows) = before.split_first().ok_or(Damage::NotOurs)?;
    let header = header_of(first)?;
    Ok(Sound {
        header,
        rows: rows.iter().zip(2..).map(|(row, n)| (n, *row)).collect(),
    })
}

/// Reads the header of a backup alone, whatever comes after it.
pub fn header_of(first: &[u8]) -> Result<Header, Damage> {
    /// What every version says of itself.
    #[derive(Deserialize)]
    struct Any {
        header: AnyHeader,
    }
    #[derive(Deserialize)]
    struct AnyHeader {
        format: String,
        version: u32,
    }
    let any: Any = serde_json::from_slice(first).map_err(|_| Damage::NotOurs)?;
    if any.header.format != FORMAT {
        return Err(Damage::NotOurs);
    }
    if VERSION < any.header.version {
        let found = any.header.version;
        return Err(Damage::Newer { found });
    }
    match serde_json::from_slice(first) {
        Ok(Edge::Header(header)) => Ok(header),
        Ok(Edge::Footer(_)) => Err(Damage::NotOurs),
        Err(source) => Err(Damage::NotJson { line: 1, source }),
    }
}

/// Finds the first line that cannot have been written so.
fn first_damaged(lines: &[&[u8]]) -> Option<Damage> {
    lines.iter().zip(1..).find_map(|(text, line)| {
        if LINE_BYTES_MAX < text.len() {
            let bytes = text.len();
            return Some(Damage::TooLong { line, bytes });
        }
        let read = serde_json::from_slice::<serde::de::IgnoredAny>(text);
        let source = read.err()?;
        Some(Damage::NotJson { line, source })
    })
}

fn text_of<T: Serialize>(row: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(row).expect("what is stored is JSON");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            schema: 1,
            program: "1.0.0".to_owned(),
            instance: "0011".to_owned(),
            taken_at: Timestamp::from_secs(1_700_000_000),
            commit: 7,
            engine_id: None,
            token_key_id: Some("ab12".to_owned()),
            order: 3,
            counts: Counts::default(),
        }
    }

    fn sealed(header: Header, rows: &[String]) -> Vec<u8> {
        let (mut seal, mut bytes) = Seal::begin(header);
        for row in rows {
            bytes.extend(seal.line(row));
        }
        bytes.extend(seal.end());
        bytes
    }

    #[test]
    fn a_backup_reads_as_it_was_written_and_its_first_line_never_changes_shape() {
        let bytes = sealed(header(), &["a".to_owned(), "b".to_owned()]);
        let sound = open(&bytes).unwrap();
        assert_eq!(sound.header, header());
        assert_eq!(sound.rows, [(2, &b"\"a\"\n"[..]), (3, &b"\"b\"\n"[..])]);
        let first = String::from_utf8(bytes).unwrap();
        let first = first.lines().next().unwrap();
        assert_eq!(
            first,
            r#"{"header":{"format":"sandboxd-backup","version":1,"schema":1,"program":"1.0.0","instance":"0011","taken_at":1700000000000000,"commit":7,"engine_id":null,"token_key_id":"ab12","order":3,"counts":{"sessions":0,"statuses":0,"runs":0,"logs":0,"keys":0}}}"#
        );
    }

    #[test]
    fn a_backup_of_a_later_version_is_refused_as_one_and_of_something_else_as_that() {
        let newer = Header {
            version: VERSION + 1,
            ..header()
        };
        let bytes = sealed(newer, &[]);
        assert!(matches!(open(&bytes), Err(Damage::Newer { found: 2 })));
        let other = Header {
            format: "cabbage".to_owned(),
            ..header()
        };
        assert!(matches!(open(&sealed(other, &[])), Err(Damage::NotOurs)));
        assert!(matches!(open(b""), Err(Damage::Empty)));
        assert!(matches!(open(b"\n"), Err(Damage::CutOff { line: 1 })));
    }

    #[test]
    fn the_damaged_line_is_named_where_it_no_longer_reads() {
        let rows = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let mut bytes = sealed(header(), &rows);
        let at = bytes
            .windows(3)
            .position(|three| three == b"\"b\"")
            .unwrap();
        bytes[at] = b'x';
        let said = open(&bytes).unwrap_err().to_string();
        assert_eq!(said, "read line 3 of the backup: it was damaged");
        bytes[at] = b'"';
        bytes[at + 1] = b'z';
        let said = open(&bytes).unwrap_err().to_string();
        assert!(said.contains("footer, line 5"), "{said}");
    }

    fn rows() -> impl Strategy<Value = Vec<String>> {
        proptest::collection::vec(".{0,40}", 0..8)
    }

    proptest! {
        #[test]
        fn a_backup_that_was_cut_off_anywhere_is_refused(
            rows in rows(),
            cut in any::<proptest::sample::Index>(),
        ) {
            let bytes = sealed(header(), &rows);
            let cut = cut.index(bytes.len());
            prop_assert!(open(&bytes[..cut]).is_err(), "cut at {cut}");
            prop_assert!(open(&bytes).is_ok());
        }

        #[test]
        fn a_backup_with_any_bit_flipped_is_refused(
            rows in rows(),
            at in any::<proptest::sample::Index>(),
            bit in 0..8u8,
        ) {
            let mut bytes = sealed(header(), &rows);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(open(&bytes).is_err(), "bit {bit} of byte {at}");
        }

        #[test]
        fn no_bytes_make_the_reading_of_a_backup_panic(bytes: Vec<u8>) {
            prop_assert!(open(&bytes).is_err());
        }
    }
}
