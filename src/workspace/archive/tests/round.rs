//! Laws of archives that go out and come back.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::{IMPORT, packed, unpacked};
use crate::workspace::Owner;
use crate::workspace::archive::{Format, import};
use crate::workspace::search::patience::testing;
use crate::workspace::search::tests::{plant, root};

fn planted() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("{}/{}", "l".repeat(200), "n".repeat(250));
    plant(
        dir.path(),
        &[
            ("a.txt", b"some text\n"),
            ("empty", b""),
            ("d/e/run.sh", b"#!/bin/sh\n"),
            ("block", &[7; 512]),
            ("large", &b"0123456789".repeat(300_000)),
            (&long, b"long"),
            ("odd \n name", b"odd"),
        ],
    );
    let path = |name: &str| dir.path().join(name);
    let raw = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"raw\xff");
    std::fs::write(dir.path().join(raw), "raw").unwrap();
    std::fs::set_permissions(path("d/e/run.sh"), PermissionsExt::from_mode(0o4755)).unwrap();
    std::fs::set_permissions(path("a.txt"), PermissionsExt::from_mode(0o440)).unwrap();
    std::fs::create_dir(path("hollow")).unwrap();
    std::fs::hard_link(path("large"), path("d/large-again")).unwrap();
    symlink("a.txt", path("link")).unwrap();
    symlink("/usr/bin/python3", path("d/python")).unwrap();
    symlink("t".repeat(300), path("long-link")).unwrap();
    dir
}

/// Everything that a round trip has to keep, by the system's own tools.
fn seen(dir: &Path) -> String {
    let script = "find . -mindepth 1 -printf '%P|%y|%m|%l|%T@|%n\\n' | sed 's/\\.[0-9]*|\\([0-9]*\\)$/|\\1/' | sort; \
                  find . -type f -exec sha256sum {} + | sort";
    let output = Command::new("sh")
        .args(["-c", script])
        .env("LC_ALL", "C")
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn differences(left: &str, right: &str) -> Vec<String> {
    let all = |text: &str| {
        text.lines()
            .map(str::to_owned)
            .collect::<std::collections::BTreeSet<_>>()
    };
    let (left, right) = (all(left), all(right));
    left.symmetric_difference(&right).cloned().collect()
}

#[test]
fn what_goes_out_comes_back_as_it_was_but_for_bits_of_rights() {
    let from = planted();
    for format in [Format::Tar, Format::TarZst] {
        let into = tempfile::tempdir().unwrap();
        let bytes = packed(from.path(), format);
        let imported = unpacked(&bytes, format, &root(into.path())).unwrap();
        let before = seen(from.path()).replace("run.sh|f|4755", "run.sh|f|755");
        let differs = differences(&before, &seen(into.path()));
        assert!(differs.is_empty(), "{differs:#?}");
        assert_eq!(
            (imported.files, imported.directories, imported.links),
            (9, 4, 3)
        );
        assert!(imported.skipped.is_empty());
    }
}

#[test]
fn gnu_tar_reads_what_goes_out_and_writes_what_comes_in() {
    let from = planted();
    let work = tempfile::tempdir().unwrap();
    let run = |script: &str| {
        let status = Command::new("sh")
            .args(["-ec", script])
            .env("FROM", from.path())
            .env("WORK", work.path())
            .status()
            .unwrap();
        assert!(status.success(), "{script}");
    };
    std::fs::write(
        work.path().join("out.tar"),
        packed(from.path(), Format::Tar),
    )
    .unwrap();
    run("mkdir $WORK/out; tar -xpf $WORK/out.tar -C $WORK/out");
    let before = seen(from.path()).replace("run.sh|f|4755", "run.sh|f|755");
    let differs = differences(&before, &seen(&work.path().join("out")));
    assert!(differs.is_empty(), "{differs:#?}");
    for format in ["gnu", "pax", "ustar", "v7"] {
        // The oldest formats have no room for long names.
        let few = match format {
            "gnu" | "pax" => ".",
            _ => "a.txt empty d/e block large d/large-again link d/python hollow",
        };
        run(&format!(
            "tar --format={format} -cf $WORK/in.tar -C $FROM {few}"
        ));
        let into = tempfile::tempdir().unwrap();
        let bytes = std::fs::read(work.path().join("in.tar")).unwrap();
        unpacked(&bytes, Format::Tar, &root(into.path())).unwrap();
        run("rm -rf $WORK/ref; mkdir $WORK/ref; tar -xpf $WORK/in.tar -C $WORK/ref");
        let expected = seen(&work.path().join("ref")).replace("run.sh|f|4755", "run.sh|f|755");
        let differs = differences(&expected, &seen(into.path()));
        // A directory that the archive does not name has the time at which it was made.
        let differs: Vec<_> = differs
            .iter()
            .filter(|line| !line.starts_with("d|d|755"))
            .collect();
        assert!(differs.is_empty(), "{format}: {differs:#?}");
    }
}

#[test]
fn zstd_reads_what_goes_out_and_writes_what_comes_in() {
    if Command::new("zstd").arg("--version").output().is_err() {
        return;
    }
    let from = planted();
    let work = tempfile::tempdir().unwrap();
    let plain = packed(from.path(), Format::Tar);
    std::fs::write(
        work.path().join("out.zst"),
        packed(from.path(), Format::TarZst),
    )
    .unwrap();
    std::fs::write(work.path().join("in.tar"), &plain).unwrap();
    let run = |script: &str| {
        let mut sh = Command::new("sh");
        let status = sh.args(["-ec", script]).current_dir(work.path()).status();
        assert!(status.unwrap().success(), "{script}");
    };
    run("zstd -dq out.zst -o out.tar");
    assert!(std::fs::read(work.path().join("out.tar")).unwrap() == plain);
    for level in ["-1", "-3", "-19"] {
        run(&format!("zstd -qf {level} in.tar -o in.zst"));
        let into = tempfile::tempdir().unwrap();
        let bytes = std::fs::read(work.path().join("in.zst")).unwrap();
        unpacked(&bytes, Format::TarZst, &root(into.path())).unwrap();
        assert!(into.path().join("d/e/run.sh").exists());
    }
}

#[test]
fn what_comes_in_belongs_to_the_sandboxs_user() {
    let from = planted();
    let into = tempfile::tempdir().unwrap();
    let owner = Owner {
        uid: 1_234,
        gid: 5_678,
    };
    let bytes = packed(from.path(), Format::Tar);
    let target = root(into.path());
    let place = (&target, Some(owner));
    import(
        bytes.as_slice(),
        Format::Tar,
        place,
        &IMPORT,
        &testing::long(),
    )
    .unwrap();
    for path in [
        "a.txt",
        "d",
        "d/e",
        "d/e/run.sh",
        "link",
        "hollow",
        "d/large-again",
    ] {
        let meta = std::fs::symlink_metadata(into.path().join(path)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (1_234, 5_678), "{path}");
        assert_eq!(meta.mode() & 0o7000, 0, "{path}");
    }
}
