//! Asks for everything that can be asked of files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Sandbox;

/// Asks for one thing after another, and returns all answers.
pub(super) fn answers(sandbox: &Sandbox, root: &str) -> Vec<Value> {
    let at = |name: &str| format!("{root}/{name}");
    let encode = |bytes: &[u8]| STANDARD.encode(bytes);
    let edit = |old: &str, new: &str| json!({"path": at("in/a.txt"), "old_string": old, "new_string": new});
    let asked = [
        (
            "write",
            json!({"path": at("in/a.txt"), "content_b64": encode(b"one\ntwo\r\nthree\n")}),
        ),
        (
            "write",
            json!({"path": at("in/deep/b c.py"), "content_b64": encode(b"two = 2\n")}),
        ),
        (
            "write",
            json!({"path": at("in/bin"), "content_b64": encode(&[0, 159, 146, 150, 255])}),
        ),
        ("write", json!({"path": at("in/empty"), "content_b64": ""})),
        (
            "write",
            json!({"path": at("in/.hidden"), "content_b64": encode(b"two\n")}),
        ),
        (
            "write",
            json!({"path": at("in/a.txt/x"), "content_b64": ""}),
        ),
        ("write", json!({"path": at("in"), "content_b64": ""})),
        (
            "read",
            json!({"path": at("in/a.txt"), "offset": 0, "limit": 2}),
        ),
        (
            "read",
            json!({"path": at("in/a.txt"), "offset": 2, "limit": 9}),
        ),
        (
            "read",
            json!({"path": at("in/a.txt"), "offset": 3, "limit": 9}),
        ),
        ("read", json!({"path": at("in/empty")})),
        ("read", json!({"path": at("in/missing")})),
        ("read", json!({"path": at("in/a.txt/x")})),
        ("read", json!({"path": at("in")})),
        ("read_bytes", json!({"path": at("in/bin")})),
        ("read_bytes", json!({"path": at("in/missing")})),
        ("edit", edit("two", "2")),
        ("edit", edit("e", "E")),
        ("edit", edit("nowhere", "x")),
        (
            "edit",
            json!({"path": at("in/a.txt"), "old_string": "e", "new_string": "E", "replace_all": true}),
        ),
        (
            "edit",
            json!({"path": at("in/missing"), "old_string": "a", "new_string": "b"}),
        ),
        ("read_bytes", json!({"path": at("in/a.txt")})),
        ("exists", json!({"path": at("in/a.txt")})),
        ("exists", json!({"path": at("in")})),
        ("exists", json!({"path": at("in/missing")})),
        ("glob", json!({"pattern": "*.txt", "path": at("in")})),
        ("glob", json!({"pattern": "**/*", "path": at("in")})),
        ("glob", json!({"pattern": "*", "path": at("in/missing")})),
        ("grep", json!({"pattern": "tw[o]", "path": at("in")})),
        (
            "grep",
            json!({"pattern": "tw[o]", "path": at("in"), "ignore_hidden": false}),
        ),
        (
            "grep",
            json!({"pattern": "t", "path": at("in"), "glob": "*.txt"}),
        ),
        ("grep", json!({"pattern": "onE", "path": at("in/a.txt")})),
        ("grep", json!({"pattern": "nowhere", "path": at("in")})),
    ];
    let mut all: Vec<Value> = asked
        .iter()
        .map(|(op, asked)| {
            let mut answer = sandbox.ask(op, asked);
            // The host has a tag for a file, which the sandbox has not.
            if let Some(fields) = answer.as_object_mut() {
                fields.remove("etag");
            }
            answer
        })
        .collect();
    // What a directory itself takes depends on its file system.
    let mut listed = sandbox.ask("ls", &json!({"path": at("in")}));
    for entry in listed.as_array_mut().unwrap() {
        if entry["is_dir"] == true {
            entry["size"] = Value::Null;
        }
    }
    all.push(listed);
    all
}

/// Compares answers one by one, so that the first other one is seen.
#[track_caller]
pub(super) fn assert_same(one: &[Value], other: &[Value], what: &str) {
    for (n, (one, other)) in one.iter().zip(other).enumerate() {
        assert_eq!(one, other, "answer {n}, {what}");
    }
    assert_eq!(one.len(), other.len());
}
