//! `doctor`, and the status that it ends with.

use serde_json::json;

use super::ran_once;
use crate::client::scripted::Reply;

#[tokio::test]
async fn a_page_is_printed_and_its_verdict_is_the_exit_status() {
    for (verdict, exit) in [
        ("ok", 0),
        ("warn", 0),
        ("fail", 1),
        ("unknown", 7),
        ("new", 1),
    ] {
        let page = json!({
            "verdict": verdict, "checked_at": 1.5,
            "findings": [{
                "check": "I3", "name": "stray_container", "level": verdict,
                "subject": "c\u{1b}1", "detail": "left", "remedy": "wait"
            }],
            "counts": {"ok": 0, "warn": 0, "fail": 0, "unknown": 0}
        });
        let ran = ran_once(Reply::Answer(200, page.to_string()), &["doctor"]).await;
        assert_eq!(ran.exit, exit, "{verdict}");
        assert!(
            ran.stdout.contains("stray_container [c\\"),
            "{}",
            ran.stdout
        );
        assert!(ran.stdout.contains("-> wait"), "{}", ran.stdout);
        assert!(!ran.stdout.contains('\u{1b}'));
    }
}
