//! Laws of cutting lines.

use std::fs::File;
use std::io::Write as _;

use proptest::prelude::*;

use super::super::beneath::Meta;
use super::*;

const FREE: Bounds = Bounds {
    text_bytes_max: u64::MAX,
    scan_bytes_max: u64::MAX,
};

fn opened(bytes: &[u8]) -> Opened {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    of(file)
}

fn of(file: File) -> Opened {
    let meta = Meta::of(&rustix::fs::fstat(&file).unwrap());
    Opened { file, meta }
}

fn cut(bytes: &[u8], offset: u64, limit: u64) -> Slice {
    let window = Window { offset, limit };
    opened(bytes).lines(window, Family::Text, FREE).unwrap()
}

fn lines(text: &str, behind: Behind) -> Slice {
    let text = text.to_owned();
    Slice::Lines { text, behind }
}

/// What Python's `splitlines` does, written for reading.
fn model(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\r' => {
                chars.next_if_eq(&'\n');
                lines.push(String::new());
            }
            '\n' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
                lines.push(String::new());
            }
            other => lines.last_mut().unwrap().push(other),
        }
    }
    lines.pop_if(|last| last.is_empty());
    lines
}

#[test]
fn lines_are_cut_as_the_contract_has_it() {
    let ten: Vec<_> = (0..10).map(|n| format!("l{n}\n")).collect();
    let ten = ten.concat();
    let slice = cut(ten.as_bytes(), 2, 3);
    assert_eq!(slice, lines("l2\nl3\nl4", Behind::Lines(5)));
    assert_eq!(
        cut(ten.as_bytes(), 7, 3),
        lines("l7\nl8\nl9", Behind::Nothing)
    );
    assert_eq!(
        cut(ten.as_bytes(), 9, u64::MAX),
        lines("l9", Behind::Nothing)
    );
    assert_eq!(cut(ten.as_bytes(), 10, 3), Slice::PastEnd);
    assert_eq!(cut(ten.as_bytes(), 4, 0), lines("", Behind::Lines(6)));
    assert_eq!(cut(b"", 0, 9), Slice::PastEnd);
    assert_eq!(cut(b"\n", 0, 9), lines("", Behind::Nothing));
    assert_eq!(cut(b"a\r\n\r\nb", 0, 9), lines("a\n\nb", Behind::Nothing));
    let utf16 = b"\xff\xfea\0\x28\x20b\0";
    assert_eq!(cut(utf16, 0, 9), lines("a\nb", Behind::Nothing));
    assert_eq!(cut(b"\xef\xbb\xbfa", 0, 9), lines("a", Behind::Nothing));
    assert_eq!(
        cut(b"caf\xe9\x85", 0, 9),
        lines("caf\u{e9}\u{2026}", Behind::Nothing)
    );
}

#[test]
fn what_is_returned_and_what_is_read_have_bounds() {
    let text = opened(&b"123456789\n".repeat(100));
    let cut = |offset, limit, text_bytes_max, scan_bytes_max| {
        let bounds = Bounds {
            text_bytes_max,
            scan_bytes_max,
        };
        text.lines(Window { offset, limit }, Family::Text, bounds)
    };
    assert!(cut(50, 2, 19, 1_000).is_ok());
    assert!(matches!(
        cut(50, 2, 18, 1_000),
        Err(FileError::TooLarge { limit: 18, .. })
    ));
    assert!(matches!(
        cut(50, 2, 19, 515),
        Err(FileError::TooLarge { limit: 515, .. })
    ));
    let found = cut(50, 2, 19, 600).unwrap();
    assert_eq!(found, lines("123456789\n123456789", Behind::AtLeast(8)));
}

#[test]
fn a_line_of_any_length_is_passed_over_and_not_kept() {
    let mut bytes = vec![b'x'; 5 << 20];
    bytes.extend_from_slice(b"\nshort");
    let bounds = Bounds {
        text_bytes_max: 100,
        scan_bytes_max: u64::MAX,
    };
    let window = Window {
        offset: 1,
        limit: 1,
    };
    let found = opened(&bytes).lines(window, Family::Text, bounds).unwrap();
    assert_eq!(found, lines("short", Behind::Nothing));
}

/// The law of 2 GiB, by hand: `cargo test --release -- --ignored ten_lines`.
#[test]
#[ignore = "it writes 2 GiB"]
fn ten_lines_of_two_gibibytes_cost_a_few_mebibytes() {
    let mut file = tempfile::tempfile().unwrap();
    let block: Vec<_> = (0..1_024).map(|n| format!("{n:01023}\n")).collect();
    let block = block.concat();
    for _ in 0..2_048 {
        file.write_all(block.as_bytes()).unwrap();
    }
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let before = peak();
    let window = Window {
        offset: 1_000_000,
        limit: 10,
    };
    let found = of(file).lines(window, Family::Text, FREE).unwrap();
    let grown = peak() - before;
    match found {
        Slice::Lines { text, behind } => {
            assert_eq!(behind, Behind::Lines(2_048 * 1_024 - 1_000_010));
            assert!(text.starts_with(&format!("{:01023}\n", 1_000_000 % 1_024)));
            assert_eq!(text.lines().count(), 10);
        }
        Slice::PastEnd => panic!("there are two million lines"),
    }
    assert!(grown < 32 * 1_024, "{grown} KiB");
}

fn text() -> impl Strategy<Value = String> {
    let char = proptest::sample::select(
        "ab\n\r\x0b\x0c\x1c\x1d\x1e\x1f\u{85}\u{2028}\u{2029}\u{2027}\u{a0}\u{e9}\u{1f600}"
            .chars()
            .collect::<Vec<_>>(),
    );
    proptest::collection::vec(char, 0..40).prop_map(|chars| chars.into_iter().collect())
}

proptest! {
    #[test]
    fn slices_are_those_of_the_model(text in text(), offset in 0u64..12, limit in 0u64..12) {
        let all = model(&text);
        let from = usize::try_from(offset).unwrap();
        let until = all.len().min(from + usize::try_from(limit).unwrap());
        let expected = if all.len() <= from {
            Slice::PastEnd
        } else {
            let behind = match all.len() - until {
                0 => Behind::Nothing,
                n => Behind::Lines(u64::try_from(n).unwrap()),
            };
            lines(&all[from..until].join("\n"), behind)
        };
        prop_assert_eq!(cut(text.as_bytes(), offset, limit), expected);
    }

    #[test]
    fn where_the_pieces_are_cut_changes_nothing(
        text in text(), sizes in proptest::collection::vec(1usize..4, 40), offset in 0u64..6,
    ) {
        let window = Window { offset, limit: 4 };
        let mut whole = Cut::new(window, u64::MAX);
        whole.take(&text).unwrap();
        let mut pieces = Cut::new(window, u64::MAX);
        let mut chars = text.chars();
        for size in sizes {
            let piece: String = chars.by_ref().take(size).collect();
            pieces.take(&piece).unwrap();
        }
        let sliced = |cut: Cut| {
            let n_lines = cut.lines();
            cut.slice(n_lines, End::OfFile, FREE).unwrap()
        };
        prop_assert_eq!(sliced(pieces), sliced(whole));
    }
}
