//! Holds what callers are told to its form.

use std::collections::BTreeSet;

use super::*;
use crate::id::{RunId, SessionId, Tenant};

fn id() -> SessionId {
    SessionId::parse("a").unwrap()
}

fn run() -> RunId {
    RunId::parse(&"0".repeat(32)).unwrap()
}

fn host_ceiling() -> Refusal {
    let setting = "fs.inotify.max_user_watches";
    FileRefusal::HostCeiling { setting, limit: 8 }.into()
}

fn sandbox_ceiling() -> Refusal {
    Refusal::SandboxCeiling {
        id: id(),
        name: "run_readers",
        what: "readers",
        limit: 1,
    }
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn refusals() -> Vec<(u16, Refusal)> {
    let text = || "x".to_owned();
    vec![
        (
            400,
            Refusal::UnknownRuntime {
                wanted: text(),
                allowed: text(),
            },
        ),
        (400, Refusal::AttachWithoutId),
        (504, FileRefusal::TooSlow(1).into()),
        (422, FileRefusal::BadPattern(text()).into()),
        (400, FileRefusal::NotBase64("x").into()),
        (409, FileRefusal::NoWorkspaces.into()),
        (404, FileRefusal::NoWorkspace(id()).into()),
        (400, FileRefusal::Outside(text()).into()),
        (404, FileRefusal::NoDirectory(text()).into()),
        (404, FileRefusal::NoFile(text()).into()),
        (400, FileRefusal::Unreadable(text()).into()),
        (500, FileRefusal::Broken(text()).into()),
        (409, FileRefusal::Handed(text()).into()),
        (413, FileRefusal::TooLarge(text()).into()),
        (409, FileRefusal::Unwritable(text()).into()),
        (412, FileRefusal::Condition(text()).into()),
        (409, FileRefusal::Changed(text()).into()),
        (429, host_ceiling()),
        (404, Refusal::NothingToAttach(id())),
        (404, Refusal::NoSession(id())),
        (404, Refusal::NoHold(text())),
        (409, Refusal::Exists(id())),
        (409, Refusal::Opening(id())),
        (409, Refusal::Closing(id())),
        (
            409,
            Refusal::OtherRuntime {
                id: id(),
                open_on: text(),
                asked: text(),
            },
        ),
        (
            409,
            Refusal::FilesInOtherRuntime {
                id: id(),
                kept_on: text(),
            },
        ),
        (409, Refusal::StillOpen(id())),
        (
            409,
            Refusal::InUse {
                id: id(),
                by: text(),
            },
        ),
        (409, Refusal::SleepLosesFiles(id())),
        (429, Refusal::OpenCeiling { limit: 1, used: 1 }),
        (
            429,
            Refusal::TenantCeiling {
                tenant: Tenant::parse("t").unwrap(),
                limit: 1,
                used: 1,
            },
        ),
        (
            429,
            Refusal::ResidentCeiling {
                waking: None,
                limit: 1,
                used: 1,
            },
        ),
        (429, Refusal::CommandCeiling { limit: 1, used: 1 }),
        (502, Refusal::StartFailed(text())),
        (502, Refusal::EngineFailed(text())),
        (503, Refusal::EngineUnavailable(text())),
        (503, Refusal::StoreUnavailable(text())),
        (503, Refusal::ShuttingDown),
        (507, Refusal::NoSpace(text())),
        (410, Refusal::SandboxGone(id())),
        (404, Refusal::NoRun(run())),
        (409, Refusal::RunIdUsed(run())),
        (409, Refusal::RunOver(run(), text())),
        (409, Refusal::RunGoesOn(run())),
        (
            410,
            Refusal::RunLost {
                run: run(),
                reason: text(),
            },
        ),
        (410, Refusal::SandboxEnded(text())),
        (501, Refusal::NeedsAgent("a run", id())),
        (403, Refusal::UserNotAllowed(text())),
        (403, Refusal::UserNotPossible(text())),
        (409, Refusal::NotPossible(text())),
        (429, sandbox_ceiling()),
    ]
}

#[test]
fn every_refusal_has_its_documented_status() {
    for (status, refusal) in refusals() {
        assert_eq!(
            Failure::from(refusal.clone()).status().as_u16(),
            status,
            "{refusal:?}"
        );
    }
}

#[test]
fn no_two_failures_share_a_code() {
    let others = [
        Failure::Unauthorized,
        Failure::Invalid(Vec::new()),
        Failure::UnreadableBody,
        Failure::SlowBody,
        Failure::TooLarge(1),
        Failure::CommandTooLarge {
            bytes: 1,
            json_bytes: 1,
            json_bytes_max: 1,
        },
        Failure::NoSuchOutput(String::new()),
        Failure::OutOfRange(1),
        Failure::NoBodyRoom { limit: 1, used: 1 },
        Failure::NoConnection { limit: 1 },
        Failure::NoRoute,
        Failure::OtherMethod(HeaderValue::from_static("GET")),
        Failure::BadHost,
        Failure::Encoded,
        Failure::ForeignOrigin,
        Failure::NotWebSocket,
        Failure::Panicked,
    ];
    let failures: Vec<Failure> = refusals()
        .into_iter()
        .map(|(_, refusal)| Failure::from(refusal))
        .chain(others)
        .collect();
    let codes: BTreeSet<&str> = failures.iter().map(|failure| failure.row().1).collect();
    assert_eq!(codes.len(), failures.len());
}

#[test]
fn every_429_and_503_says_when_to_come_back() {
    for (status, refusal) in refusals() {
        let reply = Failure::from(refusal).reply(&RequestId::random());
        let tells = reply.headers().contains_key(RETRY_AFTER);
        assert_eq!(tells, matches!(status, 429 | 503), "{status}");
    }
}

#[test]
fn every_429_names_its_ceiling_its_value_its_use_and_who_can_free_it() {
    let (limit, used) = (2, 1);
    let of_files = |name| FileRefusal::TooMany {
        what: "x",
        name,
        limit,
        of: Some(id()),
    };
    let others = [
        Failure::NoBodyRoom { limit, used },
        Failure::NoConnection { limit },
        Refusal::SessionCommandCeiling {
            id: id(),
            limit,
            used,
        }
        .into(),
        Refusal::TtyCeiling {
            id: id(),
            limit,
            used,
        }
        .into(),
        Refusal::ViewerCeiling {
            id: id(),
            tty: "t".to_owned(),
            limit,
        }
        .into(),
        Refusal::ArchiveCeiling { limit }.into(),
        Refusal::from(of_files("file_transfers")).into(),
        Refusal::from(of_files("file_watches")).into(),
    ];
    let refused = refusals().into_iter().filter(|(status, _)| *status == 429);
    let failures: Vec<Failure> = refused
        .map(|(_, refusal)| Failure::from(refusal))
        .chain(others)
        .collect();
    assert_eq!(failures.len(), 6 + 8);
    for failure in failures {
        let said = format!("{failure:?}");
        let body = failure.body(&RequestId::random());
        let ceiling = body.ceiling.unwrap_or_else(|| panic!("{said}"));
        assert!(0 < ceiling.used && ceiling.used <= ceiling.limit, "{said}");
        assert!(!ceiling.name.is_empty() && !ceiling.scope.is_empty());
        let who = body.freed_by.unwrap_or_else(|| panic!("{said}"));
        assert!(
            who.starts_with("whoever") || who.starts_with("callers") || who.starts_with("the ")
        );
    }
}

#[tokio::test]
async fn a_refused_ceiling_is_named_beside_the_detail() {
    let refusal = Refusal::OpenCeiling { limit: 2, used: 2 };
    let request_id = RequestId::parse("r-1").unwrap();
    let reply = Failure::from(refusal).reply(&request_id);
    let body = axum::body::to_bytes(reply.into_body(), 4096).await.unwrap();
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&body).unwrap(),
        serde_json::json!({
            "detail": "Service holds its ceiling of 2 open sessions and all of them are in use. Close one before opening another.",
            "code": "open_ceiling",
            "retryable": true,
            "request_id": "r-1",
            "ceiling": {"name": "max_open_sessions", "limit": 2, "used": 2, "scope": "service"},
            "freed_by": "whoever has a session open, by closing it; a sleeping one that nobody uses gives way by itself; the operator, by SANDBOXD_MAX_OPEN_SESSIONS",
        })
    );
}

#[test]
fn a_lost_run_is_gone_and_says_why_beside_the_detail() {
    let refusal = Refusal::RunLost {
        run: run(),
        reason: "container_lost".to_owned(),
    };
    let body = Failure::from(refusal).body(&RequestId::parse("r-1").unwrap());
    assert_eq!(
        serde_json::to_value(body).unwrap(),
        serde_json::json!({
            "detail": format!("Run {} is lost: container_lost", run()),
            "code": "run_lost",
            "retryable": false,
            "request_id": "r-1",
            "reason": "container_lost",
        })
    );
}
