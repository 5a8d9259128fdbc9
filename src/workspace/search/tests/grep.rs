//! Laws of finding lines.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{TOP, as_nobody, plant, root, told};
use crate::clock::Clock;
use crate::workspace::search::patience::testing;
use crate::workspace::search::{
    Cut, Expression, GrepBounds, Grepped, Hidden, Hit, Patience, Pattern, Query, SearchError,
    Start, Why, grep,
};
use crate::workspace::{FileError, RelPath};

const WIDE: GrepBounds = GrepBounds {
    reach: testing::FAR,
    hits: 1_000_000,
    bytes: 64 << 20,
    line_bytes: 4_096,
    read_bytes: 1 << 40,
};

struct Asked<'a> {
    expression: &'a str,
    filter: Option<&'a str>,
    hidden: Hidden,
    path: &'a str,
    bounds: GrepBounds,
    patience: Patience,
}

fn all(expression: &str) -> Asked<'_> {
    Asked {
        expression,
        filter: None,
        hidden: Hidden::Searched,
        path: "",
        bounds: WIDE,
        patience: testing::long(),
    }
}

fn run(dir: &Path, asked: &Asked<'_>) -> Result<Grepped, SearchError> {
    let root = root(dir);
    let path = match asked.path {
        "" => TOP.clone(),
        path => RelPath::parse(path.as_bytes()).unwrap(),
    };
    let filter = asked.filter.map(|text| Pattern::parse(text).unwrap());
    let query = Query {
        expression: &Expression::parse(asked.expression)?,
        filter: filter.as_ref(),
        hidden: asked.hidden,
    };
    let start = Start {
        dir: &root,
        path: &path,
    };
    grep(start, query, &asked.bounds, &asked.patience)
}

fn found(dir: &Path, asked: &Asked<'_>) -> Grepped {
    run(dir, asked).unwrap()
}

/// The hits as `grep -rn` writes them.
fn written(hits: &[Hit]) -> Vec<Vec<u8>> {
    let line = |hit: &Hit| {
        let mut line = b"./".to_vec();
        line.extend_from_slice(&hit.path);
        line.extend_from_slice(format!(":{}:", hit.line_number).as_bytes());
        line.extend_from_slice(&hit.line);
        line
    };
    let mut lines: Vec<_> = hits.iter().map(line).collect();
    lines.sort_unstable();
    lines
}

fn paths(grepped: &Grepped) -> Vec<&str> {
    let text = |hit: &'_ Hit| std::str::from_utf8(&hit.path).map(str::to_owned);
    let texts = grepped.hits.iter().map(|hit| {
        assert!(text(hit).is_ok());
        std::str::from_utf8(&hit.path).unwrap()
    });
    texts.collect()
}

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    plant(
        dir.path(),
        &[
            ("a.txt", b"first\nneedle here\nlast"),
            ("src/b.py", b"needle\n\nneedle twice needle\n"),
            ("src/c:1:d.py", b"a needle: with: colons\n"),
            (".hid/e.txt", b"needle\n"),
            (".dot", b"needle\n"),
            ("src/.venv/f.py", b"needle\n"),
            ("latin", b"n\xe9edle needle \xff\n"),
            ("bin/early", b"needle\n\0\n"),
            ("empty", b""),
            ("crlf.txt", b"one\r\nneedle\r\n"),
        ],
    );
    let mut late = b"needle\n".repeat(40_000);
    late.extend_from_slice(b"\0\n");
    std::fs::write(dir.path().join("bin/late"), late).unwrap();
    symlink("a.txt", dir.path().join("link.txt")).unwrap();
    symlink("/etc", dir.path().join("src/out")).unwrap();
    dir
}

#[test]
fn lines_are_those_that_grep_finds() {
    let dir = tree();
    for expression in [
        "needle",
        "^needle$",
        "n.*e",
        "[a-c] n",
        "first|last",
        "a{0}l",
        "absent",
        "N",
    ] {
        let argv = [
            &b"grep"[..],
            b"-rnIE",
            b"--exclude-dir=bin",
            b"--exclude=crlf.txt",
            b"-e",
            expression.as_bytes(),
            b".",
        ];
        // A class of any byte but the line end is what `.` is to grep in the C locale.
        let ours = format!("(?-u){expression}");
        let mut grepped = found(dir.path(), &all(&ours));
        grepped.hits.retain(|hit| hit.path != b"crlf.txt");
        assert_eq!(
            written(&grepped.hits),
            told(dir.path(), b'\n', &argv),
            "{expression}"
        );
        assert_eq!((grepped.cut, grepped.skipped.is_empty()), (None, true));
        assert!(
            grepped
                .hits
                .is_sorted_by_key(|hit| (hit.path.clone(), hit.line_number))
        );
    }
}

#[test]
fn hidden_files_are_left_out_unless_asked_for_or_named() {
    let dir = tree();
    let visible = Asked {
        hidden: Hidden::Skipped,
        ..all("^needle$")
    };
    assert_eq!(paths(&found(dir.path(), &visible)), ["src/b.py"]);
    let below = Asked {
        path: ".hid",
        ..visible
    };
    assert_eq!(paths(&found(dir.path(), &below)), ["e.txt"]);
    let file = Asked {
        path: ".dot",
        ..below
    };
    assert_eq!(found(dir.path(), &file).hits.len(), 1);
}

#[test]
fn a_filter_chooses_files_and_goes_with_hidden_ones() {
    let dir = tree();
    let filtered = Asked {
        filter: Some("*.py"),
        hidden: Hidden::Skipped,
        ..all("needle")
    };
    let hits = found(dir.path(), &filtered);
    assert_eq!(paths(&hits), ["src/b.py", "src/b.py", "src/c:1:d.py"]);
    let other = Asked {
        path: "a.txt",
        ..filtered
    };
    assert!(found(dir.path(), &other).hits.is_empty());
    let anchored = Asked {
        filter: Some("src/**"),
        path: "",
        ..other
    };
    assert_eq!(found(dir.path(), &anchored).hits.len(), 3);
}

#[test]
fn one_file_is_searched_and_a_link_or_a_missing_one_is_told() {
    let dir = tree();
    let single = Asked {
        path: "a.txt",
        ..all("needle")
    };
    let hit = Hit {
        path: Vec::new(),
        line_number: 2,
        line: b"needle here".to_vec(),
        is_line_cut: false,
    };
    assert_eq!(found(dir.path(), &single).hits, [hit]);
    let start = |path| match run(dir.path(), &Asked { path, ..all("x") }) {
        Err(SearchError::Start(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(start("no"), FileError::NotFound));
    assert!(matches!(start("link.txt"), FileError::Link { .. }));
    assert!(matches!(start("src/out"), FileError::Link { .. }));
    assert!(matches!(start("src/out/passwd"), FileError::Link { .. }));
}

#[test]
fn text_with_a_mark_of_utf_16_or_utf_8_is_read_as_text() {
    let dir = tempfile::tempdir().unwrap();
    let wide: Vec<u8> = "\u{feff}n\u{e4}chste\nneedle\u{1f980}\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    plant(
        dir.path(),
        &[("wide", &wide), ("mark", b"\xef\xbb\xbfneedle\n")],
    );
    let grepped = found(dir.path(), &all("^needle|^n\u{e4}"));
    let lines: Vec<_> = grepped
        .hits
        .iter()
        .map(|hit| String::from_utf8(hit.line.clone()).unwrap())
        .collect();
    assert_eq!(lines, ["needle", "n\u{e4}chste", "needle\u{1f980}"]);
}

#[test]
fn a_bad_or_huge_pattern_is_refused_in_words() {
    for (expression, says) in [
        ("(", "unclosed group"),
        ("[", "unclosed character class"),
        ("a\\nb", "not allowed"),
        ("(a{1000}){1000}", "size limit"),
        (&format!("{}x{}", "(".repeat(200), ")".repeat(200)), "nest"),
        (&"a".repeat(5_000), "longer than 4096 bytes"),
        ("(?=x)", "look-around"),
    ] {
        match Expression::parse(expression) {
            Err(SearchError::Expression(text)) => assert!(text.contains(says), "{text}"),
            other => panic!("{expression}: {other:?}"),
        }
    }
}

#[test]
fn every_bound_keeps_what_was_found_and_is_named() {
    let dir = tree();
    // Whether it is binary is seen only after hits that a bound may count.
    std::fs::remove_file(dir.path().join("bin/late")).unwrap();
    let everything = found(dir.path(), &all("needle"));
    let cut = |bounds| {
        let grepped = found(
            dir.path(),
            &Asked {
                bounds,
                ..all("needle")
            },
        );
        (grepped.hits.len(), grepped.cut)
    };
    let n_hits = everything.hits.len();
    assert_eq!(cut(WIDE), (n_hits, None));
    assert_eq!(cut(GrepBounds { hits: 2, ..WIDE }), (2, Some(Cut::Results)));
    assert_eq!(
        cut(GrepBounds {
            hits: n_hits,
            ..WIDE
        }),
        (n_hits, None)
    );
    let (few, why) = cut(GrepBounds { bytes: 40, ..WIDE });
    assert!(few < n_hits && why == Some(Cut::Bytes));
    let (few, why) = cut(GrepBounds {
        read_bytes: 30,
        ..WIDE
    });
    assert!(few < n_hits && why == Some(Cut::Read));
    let bounds = GrepBounds {
        line_bytes: 8,
        ..WIDE
    };
    let short = found(
        dir.path(),
        &Asked {
            bounds,
            path: "a.txt",
            ..all("needle")
        },
    );
    assert_eq!(
        (&short.hits[0].line[..], short.hits[0].is_line_cut),
        (&b"needle h"[..], true)
    );
}

#[test]
fn a_line_of_megabytes_leaves_its_file_out_and_the_rest_is_searched() {
    let dir = tree();
    let mut long = b"needle\n".to_vec();
    long.resize(5 << 20, b'x');
    std::fs::write(dir.path().join("long"), long).unwrap();
    let grepped = found(dir.path(), &all("^needle$"));
    assert!(grepped.hits.iter().any(|hit| hit.path == b"src/b.py"));
    let [left] = &grepped.skipped.listed[..] else {
        panic!("{:?}", grepped.skipped);
    };
    assert_eq!((&left.path[..], left.why), (&b"long"[..], Why::LongLine));
}

#[test]
fn one_unreadable_file_is_told_and_the_rest_is_searched() {
    let grepped = as_nobody(|| {
        let dir = tempfile::tempdir().unwrap();
        plant(
            dir.path(),
            &[("a", b"needle"), ("b", b"needle"), ("c", b"needle")],
        );
        let shut = dir.path().join("b");
        std::fs::set_permissions(shut, std::fs::Permissions::from_mode(0o000)).unwrap();
        found(dir.path(), &all("needle"))
    });
    assert_eq!(paths(&grepped), ["a", "c"]);
    let [left] = &grepped.skipped.listed[..] else {
        panic!("{:?}", grepped.skipped);
    };
    assert_eq!((&left.path[..], left.why), (&b"b"[..], Why::Denied));
}

#[test]
fn a_deadline_or_a_caller_that_goes_ends_the_search_within_a_large_file() {
    let dir = tempfile::tempdir().unwrap();
    // Holes of text cannot be made; a line that matches nowhere, often.
    std::fs::write(
        dir.path().join("large"),
        b"hay and more hay\n".repeat(4 << 20),
    )
    .unwrap();
    let clock = Clock::host();
    let began = clock.now();
    let deadline = began.plus(Duration::from_millis(20));
    let patience = Patience::new(clock.clone(), deadline, CancellationToken::new());
    let late = found(
        dir.path(),
        &Asked {
            patience,
            ..all("(h.y|needle)+ x")
        },
    );
    assert_eq!(late.cut, Some(Cut::Late));
    let took = clock.now().since(began);
    assert!(took < Duration::from_secs(5), "{took:?}");
    let gone = run(
        dir.path(),
        &Asked {
            patience: testing::cancelled(),
            ..all("hay")
        },
    );
    assert!(matches!(gone, Err(SearchError::Cancelled)));
}

#[test]
fn a_pipe_and_a_file_of_holes_hold_nobody_up() {
    let dir = tree();
    let made = std::process::Command::new("mkfifo")
        .arg(dir.path().join("pipe"))
        .status();
    assert!(made.unwrap().success());
    let holes = std::fs::File::create(dir.path().join("holes")).unwrap();
    holes.set_len(1 << 40).unwrap();
    let grepped = found(dir.path(), &all("^needle$"));
    assert!(grepped.cut.is_none() && grepped.skipped.is_empty());
}

#[test]
fn an_expression_that_is_heavy_gets_only_lines_that_are_short_enough_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut line: Vec<u8> = b"ab".repeat(400_000);
    line.extend_from_slice(b"c\n");
    plant(
        dir.path(),
        &[("long", &line), ("short", &line[line.len() - 10_002..])],
    );
    let heavy = found(dir.path(), &all("(?-u)a[ab]{2000}c"));
    assert_eq!(paths(&heavy), Vec::<&str>::new());
    let heavy = found(dir.path(), &all("(?-u)b[ab]{2000}c"));
    assert_eq!(paths(&heavy), ["short"]);
    let left: Vec<_> = heavy
        .skipped
        .listed
        .iter()
        .map(|left| (&left.path[..], left.why))
        .collect();
    assert_eq!(left, [(&b"long"[..], Why::LongLine)]);
    let light = found(dir.path(), &all("bc$"));
    assert_eq!(
        (paths(&light), light.skipped.is_empty()),
        (vec!["long", "short"], true)
    );
}
