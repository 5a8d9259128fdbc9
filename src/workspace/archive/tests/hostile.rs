//! Archives that are made to do harm, each with what stops it.

use std::io::Read;
use std::path::Path;

use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::{IMPORT, archive, file, member, packed, unpacked};
use crate::workspace::archive::{Format, Hazard, ImportBounds, ImportError, Limit, import};
use crate::workspace::search::patience::testing;
use crate::workspace::search::tests::{plant, root};
use crate::workspace::search::{Stop, Why};

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut content = Vec::new();
    for (key, value) in records {
        let body = format!(" {key}={value}\n");
        let mut length = body.len() + 1;
        while length != body.len() + length.to_string().len() {
            length += 1;
        }
        content.extend_from_slice(format!("{length}{body}").as_bytes());
    }
    member(b"pax", b'x', b"", &content)
}

/// Everything that lies outside of the directory that is unpacked into.
fn outside(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let is_file = entry.file_type().unwrap().is_file();
        let content = is_file.then(|| std::fs::read_to_string(entry.path()).unwrap());
        format!("{name}: {}", content.unwrap_or_default())
    });
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names
}

/// Makes members of a line: `f` a file, `d` a directory, `l` a link and `h` a hard link,
/// `p` a file with its name in pax and `n` one with a long name.
fn members(line: &str) -> Vec<Vec<u8>> {
    let one = |text: &str| {
        let (kind, rest) = text.split_once(' ').unwrap();
        let (path, to) = rest.split_once(" > ").unwrap_or((rest, ""));
        let (name, link) = (path.as_bytes(), to.as_bytes());
        match kind {
            "f" => vec![file(path, b"evil")],
            "d" => vec![member(name, b'5', b"", b"")],
            "l" => vec![member(name, b'2', link, b"")],
            "h" => vec![member(name, b'1', link, b"")],
            "p" => vec![pax(&[("path", path)]), file("a", b"evil")],
            "n" => vec![
                member(b"././@LongLink", b'L', b"", &[name, b"\0"].concat()),
                file("a", b"evil"),
            ],
            other => panic!("{other}"),
        }
    };
    line.split(" ; ").flat_map(one).collect()
}

#[test]
fn a_member_that_would_reach_out_refuses_the_archive_and_touches_nothing() {
    let endless = format!("p {}x", "x/".repeat(2_500));
    let long = format!("p {}", "x".repeat(256));
    for (line, expected) in [
        ("f /tmp/evil", Hazard::Absolute),
        ("f //tmp/evil", Hazard::Absolute),
        ("p /evil", Hazard::Absolute),
        ("n /evil", Hazard::Absolute),
        ("f ../evil", Hazard::Climbs),
        ("f a/../../evil", Hazard::Climbs),
        ("f a/../b", Hazard::Climbs),
        ("f a/..", Hazard::Climbs),
        ("d ../evil", Hazard::Climbs),
        ("l ../evil > x", Hazard::Climbs),
        ("p ../evil", Hazard::Climbs),
        ("n ../evil", Hazard::Climbs),
        ("p a\0b", Hazard::NoPath),
        ("p ", Hazard::NoPath),
        (&endless, Hazard::NoPath),
        (&long, Hazard::NoPath),
        ("f .", Hazard::NoPath),
        ("l . > ..", Hazard::NoPath),
        ("l l > .. ; f l/evil", Hazard::BelowLink),
        ("d d ; l l > d ; f l/evil", Hazard::BelowLink),
        ("l l > /tmp ; f l/a/b/evil", Hazard::BelowLink),
        ("l l > .. ; d l", Hazard::BelowLink),
        ("l l > .. ; d l/evil", Hazard::BelowLink),
        ("l l > .. ; l l/evil > x", Hazard::BelowLink),
        ("f f ; l l > .. ; h l/evil > f", Hazard::BelowLink),
        ("d d ; l d > ..", Hazard::Taken),
        ("d d ; f d", Hazard::Taken),
        ("f f ; d d ; h d > f", Hazard::Taken),
        ("f f ; d f", Hazard::Taken),
        ("f f ; f f/x", Hazard::Taken),
        ("h h > ../precious", Hazard::Climbs),
        ("h h > /etc/passwd", Hazard::Absolute),
        ("l l > .. ; h h > l/precious", Hazard::NoSource),
        ("l l > ../precious ; h h > l", Hazard::NoSource),
        ("h h > no", Hazard::NoSource),
        ("h h > h", Hazard::NoSource),
        ("d d ; h h > d", Hazard::NoSource),
        ("l l", Hazard::NoTarget),
    ] {
        let dir = tempfile::tempdir().unwrap();
        plant(dir.path(), &[("precious", b"kept")]);
        let into = dir.path().join("into");
        std::fs::create_dir(&into).unwrap();
        let before = outside(dir.path());
        match unpacked(&archive(&members(line)), Format::Tar, &root(&into)) {
            Err(ImportError::Hazard { hazard, .. }) => assert_eq!(hazard, expected, "{line}"),
            other => panic!("{line}: {other:?}"),
        }
        assert_eq!(outside(dir.path()), before, "{line}");
    }
}

#[test]
fn a_later_member_takes_the_place_of_an_earlier_one_and_of_that_alone() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path(), &[("precious", b"kept")]);
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let members = [
        file("a", b"first"),
        member(b"b", b'1', b"a", b""),
        file("a", b"second"),
        member(b"l", b'2', b"../precious", b""),
        file("l", b"third"),
        member(b"b", b'1', b"b", b""),
        member(b"c", b'1', b"l", b""),
        file("d/e/f", b"parents are made"),
        member(b"d/", b'5', b"", b""),
        file("./././d//e/g", b"names are tidied"),
        member(b"./", b'5', b"", b""),
    ];
    let imported = unpacked(&archive(&members), Format::Tar, &root(&into)).unwrap();
    assert_eq!(
        (imported.files, imported.directories, imported.links),
        (8, 2, 1)
    );
    let read = |name: &str| std::fs::read_to_string(into.join(name)).unwrap();
    assert_eq!(
        (&*read("a"), &*read("b"), &*read("l"), &*read("c")),
        ("second", "first", "third", "third")
    );
    assert_eq!(&*read("d/e/g"), "names are tidied");
    assert_eq!(std::fs::read(dir.path().join("precious")).unwrap(), b"kept");
    let mode = |name: &str| {
        let meta = std::fs::metadata(into.join(name)).unwrap();
        std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o7777
    };
    assert_eq!((mode("a"), mode("d"), mode("d/e")), (0o755, 0o755, 0o755));
}

#[test]
fn devices_and_pipes_are_left_out_and_told() {
    let into = tempfile::tempdir().unwrap();
    let members = [b'3', b'4', b'6'].map(|kind| member(&[kind], kind, b"", b""));
    let imported = unpacked(&archive(&members), Format::Tar, &root(into.path())).unwrap();
    let whys: Vec<_> = imported
        .skipped
        .listed
        .iter()
        .map(|left| left.why)
        .collect();
    assert_eq!(whys, [Why::Special; 3]);
    assert_eq!(std::fs::read_dir(into.path()).unwrap().count(), 0);
}

#[test]
fn what_readers_take_in_different_ways_is_refused() {
    let sparse = member(b"s", b'S', b"", b"");
    let cases = [
        vec![sparse],
        vec![
            pax(&[("GNU.sparse.realsize", "1099511627776")]),
            file("a", b""),
        ],
        vec![member(b"l", b'2', b"a", b"content")],
        vec![member(b"l", b'1', b"a", b"content")],
        vec![member(b"d", b'5', b"", b"content")],
        vec![member(b"v", b'V', b"", b"")],
        vec![member(b"g", b'g', b"", b"12 path=abc\n"), file("a", b"")],
    ];
    for members in cases {
        let into = tempfile::tempdir().unwrap();
        let error = unpacked(&archive(&members), Format::Tar, &root(into.path())).unwrap_err();
        assert!(matches!(error, ImportError::Unsupported(_)), "{error:?}");
    }
}

#[test]
fn an_archive_that_is_cut_damaged_or_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path(), &[("a", &[b'x'; 5_000]), ("b", b"y")]);
    for format in [Format::Tar, Format::TarZst] {
        let whole = packed(dir.path(), format);
        // The last block of a plain archive is one more than is needed.
        let needed = match format {
            Format::Tar => whole.len() - 512,
            Format::TarZst => whole.len(),
        };
        for end in (0..needed).step_by(37).chain([needed - 1]) {
            let into = tempfile::tempdir().unwrap();
            let refused = unpacked(&whole[..end], format, &root(into.path()));
            assert!(refused.is_err(), "{format:?} cut at {end}");
        }
    }
    let mut damaged = packed(dir.path(), Format::Tar);
    damaged[20] ^= 1;
    for (bytes, format) in [
        (&damaged[..], Format::Tar),
        (&b"hello, this is no archive".repeat(100)[..], Format::Tar),
        (
            &b"hello, this is no archive".repeat(100)[..],
            Format::TarZst,
        ),
        (&[], Format::Tar),
        (&[], Format::TarZst),
    ] {
        let into = tempfile::tempdir().unwrap();
        let error = unpacked(bytes, format, &root(into.path())).unwrap_err();
        assert!(
            matches!(error, ImportError::Damaged(_) | ImportError::Truncated),
            "{error:?}"
        );
    }
}

fn limit(bytes: &[u8], format: Format, bounds: ImportBounds) -> Limit {
    let into = tempfile::tempdir().unwrap();
    let target = root(into.path());
    match import(bytes, format, (&target, None), &bounds, &testing::long()) {
        Err(ImportError::TooMuch { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn too_many_entries_bytes_or_notes_are_refused() {
    let many = archive(
        &(0..50)
            .map(|at| file(&format!("f{at}"), b"x"))
            .collect::<Vec<_>>(),
    );
    let tar = Format::Tar;
    assert_eq!(
        limit(
            &many,
            tar,
            ImportBounds {
                entries: 20,
                ..IMPORT
            }
        ),
        Limit::Entries
    );
    assert_eq!(
        limit(
            &many,
            tar,
            ImportBounds {
                bytes: 9_000,
                ..IMPORT
            }
        ),
        Limit::Bytes
    );
    assert_eq!(
        limit(
            &many,
            tar,
            ImportBounds {
                sent_bytes: 9_000,
                ..IMPORT
            }
        ),
        Limit::SentBytes
    );
    let note = member(b"././@LongLink", b'L', b"", &b"a".repeat(200_000));
    assert_eq!(
        limit(&archive(&[note.clone(), note]), tar, IMPORT),
        Limit::Notes
    );
    // A size that is told and not sent takes no memory.
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::XHeader);
    header.set_size(1 << 60);
    header.set_cksum();
    assert_eq!(limit(header.as_bytes(), tar, IMPORT), Limit::Notes);
}

#[test]
fn a_bomb_of_zeros_is_refused_by_its_ratio_or_its_bytes_and_in_time() {
    let mut header = tar::Header::new_gnu();
    header.set_path("bomb").unwrap();
    header.set_mode(0o644);
    header.set_size(1 << 40);
    header.set_cksum();
    let mut bomb = compress_to_vec(&header.as_bytes()[..], CompressionLevel::Fastest);
    let zeros = compress_to_vec(std::io::repeat(0).take(8 << 20), CompressionLevel::Fastest);
    for _ in 0..2_000 {
        bomb.extend_from_slice(&zeros);
    }
    assert!(bomb.len() < 1 << 20, "it would be 16 GiB");
    let zst = Format::TarZst;
    assert_eq!(limit(&bomb, zst, IMPORT), Limit::Ratio);
    let small = ImportBounds {
        bytes: 10 << 20,
        ..IMPORT
    };
    assert_eq!(limit(&bomb, zst, small), Limit::Bytes);
    let into = tempfile::tempdir().unwrap();
    let target = root(into.path());
    let late = import(&bomb[..], zst, (&target, None), &IMPORT, &testing::none());
    assert!(
        matches!(late, Err(ImportError::Stopped(Stop::Late))),
        "{late:?}"
    );
}

#[test]
fn a_frame_that_wants_much_memory_is_refused_and_skippable_ones_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path(), &[("a", b"x")]);
    let whole = packed(dir.path(), Format::TarZst);
    let mut skipping = vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    skipping.extend_from_slice(&whole);
    let into = tempfile::tempdir().unwrap();
    unpacked(&skipping, Format::TarZst, &root(into.path())).unwrap();
    // A window of 2 GiB, by a descriptor of exponent 21.
    let huge = [0x28, 0xb5, 0x2f, 0xfd, 0, 21 << 3, 1, 0, 0];
    let into = tempfile::tempdir().unwrap();
    let error = unpacked(&huge, Format::TarZst, &root(into.path())).unwrap_err();
    assert!(matches!(error, ImportError::Damaged(_)), "{error:?}");
}

#[test]
fn a_directory_that_is_not_empty_and_a_source_that_fails_are_told() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let target = root(dir.path());
    for format in [Format::Tar, Format::TarZst] {
        let failed = import(Failing, format, (&target, None), &IMPORT, &testing::long());
        match failed {
            Err(ImportError::Source(error)) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
            }
            other => panic!("{other:?}"),
        }
    }
    plant(dir.path(), &[("a", b"x")]);
    let error = unpacked(&archive(&[]), Format::Tar, &target).unwrap_err();
    assert!(matches!(error, ImportError::NotEmpty));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn archives_with_any_bytes_changed_never_panic_nor_reach_out(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        is_zst in any::<bool>(),
    ) {
        let format = if is_zst { Format::TarZst } else { Format::Tar };
        let from = tempfile::tempdir().unwrap();
        plant(from.path(), &[("a", b"some text"), ("d/b", &[b'y'; 3_000]), ("c", b"")]);
        let mut bytes = packed(from.path(), format);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let dir = tempfile::tempdir().unwrap();
        let into = dir.path().join("into");
        std::fs::create_dir(&into).unwrap();
        let outcome = unpacked(&bytes, format, &root(&into));
        prop_assert!(outcome.is_ok() || outcome.is_err());
        prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
