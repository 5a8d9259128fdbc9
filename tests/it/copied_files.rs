//! Files that an operator copies with `sandboxctl cp`.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::file_case::{FileCase, bytes, sha256};

/// Runs `sandboxctl`; returns its status and what it said and printed.
fn ctl(case: &FileCase, args: &[&str], input: &[u8]) -> (i32, String, Vec<u8>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sandboxctl"))
        .env_clear()
        .env("SANDBOXD_URL", case.daemon.url())
        .env("SANDBOXD_TOKEN", case.daemon.token())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It ends without reading where it is refused.
    match child.stdin.take().unwrap().write_all(input) {
        Ok(()) | Err(_) => {}
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), said, output.stdout)
}

#[test]
fn sandboxctl_copies_a_file_in_and_out_whole() {
    let case = FileCase::new(&[("SANDBOXD_MAX_UPLOAD_BYTES", "2000000")]);
    let here = tempfile::tempdir().unwrap();
    let path = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    let content = bytes(1_500_000);
    fs::write(path("from"), &content).unwrap();
    let done = (0, String::new(), Vec::new());
    assert_eq!(ctl(&case, &["cp", &path("from"), "s:a/f"], b""), done);
    assert_eq!(fs::read(case.host("a/f")).unwrap(), content);
    assert_eq!(ctl(&case, &["cp", "s:a/f", &path("")], b""), done);
    assert_eq!(
        ctl(&case, &["cp", "s:/workspace/a/f", &path("to")], b""),
        done
    );
    for name in ["f", "to"] {
        assert_eq!(fs::read(path(name)).unwrap(), content);
    }
    assert_eq!(ctl(&case, &["cp", "-", "s:in"], &content), done);
    assert_eq!(ctl(&case, &["cp", "s:in", "-"], b"").2, content);

    let told = ctl(&case, &["-o", "json", "cp", &path("from"), "s:f"], b"").2;
    let told: Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(told["sha256"], sha256(&content));
    fs::write(path("large"), bytes(2_000_001)).unwrap();
    for (args, status, expected) in [
        (["cp", "s:nowhere", &path("to")], 3, "No such file: nowhere"),
        (["cp", &path("large"), "s:in"], 1, "over the 2000000 bytes"),
        (
            ["cp", here.path().to_str().unwrap(), "s:in"],
            1,
            "is a directory",
        ),
        (["cp", "a", "b"], 2, "has to be in a session"),
        (["cp", "s:a", "s:b"], 2, "has to be in a session"),
    ] {
        let (code, said, printed) = ctl(&case, &args, b"");
        assert_eq!((code, printed), (status, Vec::new()), "{args:?}: {said}");
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    let (code, said, _) = ctl(&case, &["cp", "-", "s:in"], &bytes(2_000_001));
    assert!(
        code == 1 && said.contains("over the 2000000 bytes"),
        "{said}"
    );
    assert_eq!(fs::read(case.host("in")).unwrap(), content);
    assert_eq!(
        fs::read(path("to")).unwrap(),
        content,
        "what was there stays"
    );
    let names = fs::read_dir(here.path()).unwrap().count();
    assert_eq!(names, 4, "nothing is left over");
}
