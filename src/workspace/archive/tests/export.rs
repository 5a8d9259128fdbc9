//! Laws of packing a tree that changes, or does not fit.

use std::io::Read as _;
use std::os::unix::fs::symlink;

use super::{EXPORT, begin, packed, unpacked};
use crate::clock::Clock;
use crate::workspace::archive::{Export, ExportBounds, ExportError, Exported, Format};
use crate::workspace::search::patience::testing;
use crate::workspace::search::tests::{clear, plant, plant_deep, root};
use crate::workspace::search::{Cut, Patience, Reach, Why};

#[test]
fn a_file_that_shrinks_is_filled_up_and_one_that_grows_is_cut_and_both_are_told() {
    let from = tempfile::tempdir().unwrap();
    plant(
        from.path(),
        &[
            ("a-shrinks", &b"x".repeat(1_000_000)),
            ("b-grows", &b"y".repeat(1_000_000)),
            ("c", b"last"),
        ],
    );
    let mut export = begin(from.path(), Format::Tar);
    let mut bytes = vec![0; 100_000];
    export.read_exact(&mut bytes).unwrap();
    std::fs::write(from.path().join("a-shrinks"), vec![b'x'; 10]).unwrap();
    let mut more = vec![0; 1_000_000];
    export.read_exact(&mut more).unwrap();
    bytes.extend(more);
    let grown = std::fs::OpenOptions::new()
        .append(true)
        .open(from.path().join("b-grows"));
    std::io::Write::write_all(&mut grown.unwrap(), b"more").unwrap();
    export.read_to_end(&mut bytes).unwrap();
    let told: Vec<_> = export
        .exported()
        .skipped
        .listed
        .into_iter()
        .map(|left| (left.path, left.why))
        .collect();
    let expected = [
        (b"a-shrinks".to_vec(), Why::Shrank),
        (b"b-grows".to_vec(), Why::Grew),
    ];
    assert_eq!(told, expected);
    assert_eq!(u64::try_from(bytes.len()).unwrap(), export.exported().bytes);
    let into = tempfile::tempdir().unwrap();
    unpacked(&bytes, Format::Tar, &root(into.path())).unwrap();
    let read = |name: &str| std::fs::read(into.path().join(name)).unwrap();
    assert_eq!(
        (read("a-shrinks").len(), read("b-grows").len()),
        (1_000_000, 1_000_000)
    );
    assert_eq!(
        (read("a-shrinks").last(), &read("c")[..]),
        (Some(&0), &b"last"[..])
    );
}

#[test]
fn special_files_are_left_out_and_told_and_links_go_as_links() {
    let from = tempfile::tempdir().unwrap();
    plant(from.path(), &[("f", b"x")]);
    symlink("/etc/passwd", from.path().join("out")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(from.path().join("pipe"))
        .status();
    assert!(made.unwrap().success());
    std::os::unix::net::UnixListener::bind(from.path().join("socket")).unwrap();
    let mut export = begin(from.path(), Format::Tar);
    let mut bytes = Vec::new();
    export.read_to_end(&mut bytes).unwrap();
    let Exported {
        files,
        directories,
        links,
        skipped,
        ..
    } = export.exported();
    assert_eq!((files, directories, links), (1, 0, 1));
    let whys: Vec<_> = skipped.listed.iter().map(|left| left.why).collect();
    assert_eq!(whys, [Why::Special, Why::Special]);
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("/etc/passwd") && !text.contains("root:"));
}

#[test]
fn an_archive_that_does_not_fit_ends_in_an_error() {
    let from = tempfile::tempdir().unwrap();
    plant(from.path(), &[("a", b"x"), ("d/e/f", b"x")]);
    let holes = std::fs::File::create(from.path().join("holes")).unwrap();
    holes.set_len(1 << 40).unwrap();
    let ending = |bounds: ExportBounds, patience: Patience| {
        let mut export =
            Export::begin(&root(from.path()), Format::TarZst, bounds, patience).unwrap();
        let error = export.read_to_end(&mut Vec::new()).unwrap_err();
        error.downcast::<ExportError>().unwrap()
    };
    assert_eq!(
        ending(EXPORT, testing::long()),
        ExportError::Cut(Cut::Bytes)
    );
    std::fs::remove_file(from.path().join("holes")).unwrap();
    let shallow = ExportBounds {
        reach: Reach {
            depth: 1,
            ..testing::FAR
        },
        ..EXPORT
    };
    assert_eq!(
        ending(shallow, testing::long()),
        ExportError::Cut(Cut::Depth)
    );
    let few = ExportBounds {
        reach: Reach {
            entries: 2,
            ..testing::FAR
        },
        ..EXPORT
    };
    assert_eq!(ending(few, testing::long()), ExportError::Cut(Cut::Entries));
    let small = ExportBounds {
        bytes: 2_000,
        ..EXPORT
    };
    assert_eq!(ending(small, testing::long()), ExportError::Cut(Cut::Bytes));
    assert_eq!(ending(EXPORT, testing::none()), ExportError::Cut(Cut::Late));
    assert_eq!(ending(EXPORT, testing::cancelled()), ExportError::Cancelled);
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
fn a_deep_tree_is_packed_and_a_large_one_at_a_rate_that_is_printed() {
    let from = tempfile::tempdir().unwrap();
    plant_deep(from.path(), 500);
    assert!(1_500 * 512 < packed(from.path(), Format::Tar).len());
    clear(from.path());
    let text = b"fn main() { println!(\"some words of a program\"); }\n".repeat(2_000);
    for at in 0..200_u32 {
        let mut content = text.clone();
        content.extend(at.to_le_bytes());
        std::fs::write(from.path().join(format!("f{at}")), content).unwrap();
    }
    let clock = Clock::host();
    for format in [Format::Tar, Format::TarZst] {
        let began = clock.now();
        let bytes = packed(from.path(), format);
        println!(
            "{format:?}: {} bytes in {:?}",
            bytes.len(),
            clock.now().since(began)
        );
        let into = tempfile::tempdir().unwrap();
        let began = clock.now();
        let imported = unpacked(&bytes, format, &root(into.path())).unwrap();
        println!(
            "back: {} bytes in {:?}",
            imported.bytes,
            clock.now().since(began)
        );
        assert_eq!(imported.files, 200);
    }
}

#[test]
fn packing_a_tree_whose_directories_are_swapped_for_links_takes_nothing_from_outside() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("ws"), dir.path().join("outside"));
    plant(
        &outside,
        &[("f", b"secret outside"), ("deep/f", b"secret outside")],
    );
    plant(
        &inside,
        &[("d/f", b"plain"), ("d/deep/f", b"plain"), ("g", b"plain")],
    );
    symlink(&outside, inside.join("l")).unwrap();
    symlink(outside.join("f"), inside.join("m")).unwrap();
    let (end, packed_at) = (AtomicBool::new(false), inside.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                for (left, right) in [("d", "l"), ("g", "m")] {
                    let (left, right) = (inside.join(left), inside.join(right));
                    let how = rustix::fs::RenameFlags::EXCHANGE;
                    let at = rustix::fs::CWD;
                    rustix::fs::renameat_with(at, left, at, right, how).unwrap();
                }
            }
        });
        for _ in 0..2_000 {
            let bytes = packed(&packed_at, Format::Tar);
            let secret = bytes.windows(6).any(|window| window == b"secret");
            if secret {
                end.store(true, Ordering::Relaxed);
            }
            assert!(!secret);
        }
        end.store(true, Ordering::Relaxed);
    });
}
