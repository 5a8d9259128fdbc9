//! Holds the edge to what its callers rely on, over the whole route table.

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use serde_json::{Value, json};

use crate::api::body::JSON_BODY_BYTES_MAX;
use crate::api::edge::Edge;
use crate::api::room::BodyRoom;
use crate::api::routes::{Access, Route};
use crate::api::table::TABLE;
use crate::control::Control;
use crate::control::testing::without_engine;
use crate::secret::Secret;

const TOKEN: &str = "the-service-token";

/// Makes a service without sessions and without an engine.
pub(super) fn control() -> Control {
    without_engine(Secret::new(TOKEN.to_owned()))
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json");
        serde_json::from_slice(&self.body).unwrap()
    }
}

async fn answer(request: Request<Body>) -> Answer {
    let edge = Edge::new(TABLE, control(), BodyRoom::default());
    let (parts, body) = edge.answer(request).await.into_parts();
    Answer {
        status: parts.status,
        headers: parts.headers,
        body: to_bytes(body, 1 << 20).await.unwrap().to_vec(),
    }
}

fn request(method: &str, path: &str) -> axum::http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
}

async fn call(method: &str, path: &str) -> Answer {
    answer(request(method, path).body(Body::empty()).unwrap()).await
}

async fn with_token(method: &str, path: &str, body: &str) -> Answer {
    let request = request(method, path)
        .header("x-sandbox-token", TOKEN)
        .header("content-type", "application/json");
    answer(request.body(body.to_owned().into()).unwrap()).await
}

fn guarded() -> impl Iterator<Item = (&'static Route, String)> {
    let rows = TABLE.iter().filter(|row| row.access != Access::Public);
    rows.map(|row| (row, row.path.replace(['{', '}'], "")))
}

#[tokio::test]
async fn a_handler_cannot_run_without_a_caller() {
    let tokens: [&[&[u8]]; 5] = [
        &[],
        &[b""],
        &[b"wrong"],
        &[b"\xe9"],
        // The first header counts.
        &[b"wrong", TOKEN.as_bytes()],
    ];
    for (row, path) in guarded() {
        for given in tokens {
            let mut builder = request(row.verb.as_str(), &path);
            for token in given {
                builder = builder.header("X-Sandbox-Token", *token);
            }
            // Neither a body nor a query is looked at before the token.
            let refused = answer(builder.body("{bad".into()).unwrap()).await;
            assert_eq!(
                refused.status,
                401,
                "{} {path} {given:?}",
                row.verb.as_str()
            );
            assert_eq!(refused.json()["detail"], "Invalid or missing sandbox token");
        }
    }
}

#[tokio::test]
async fn every_row_of_the_table_reaches_its_handler() {
    for (row, path) in guarded() {
        let method = row.verb.as_str();
        let reached = with_token(method, &path, "").await;
        if reached.status.is_client_error() {
            let code = reached.json()["code"].clone();
            let unrouted = [
                json!("no_route"),
                json!("method_not_allowed"),
                json!("unauthorized"),
            ];
            assert!(!unrouted.contains(&code), "{method} {path}: {code}");
        }
    }
    for row in TABLE.iter().filter(|row| row.access == Access::Public) {
        assert_eq!(call("GET", row.path).await.status, 200, "{}", row.path);
    }
}

#[tokio::test]
async fn a_malformed_id_is_told_to_anyone_under_sessions_and_to_callers_under_workspaces() {
    for path in [
        "/sessions/-bad",
        "/sessions/a%00",
        "/sessions/%ff",
        "/sessions/a%0A",
    ] {
        let told = call("GET", path).await;
        assert_eq!(told.status, 422, "{path}");
        let fault = &told.json()["detail"][0];
        assert_eq!(fault["type"], "string_pattern_mismatch");
        assert_eq!(fault["loc"], json!(["path", "session_id"]));
    }
    assert_eq!(call("DELETE", "/workspaces/-bad").await.status, 401);
    assert_eq!(
        with_token("DELETE", "/workspaces/-bad", "").await.status,
        422
    );
    assert_eq!(call("GET", "/sessions/a%2Fb").await.status, 404);
}

#[tokio::test]
async fn an_unknown_session_is_told_to_the_service_alone_and_before_its_request_is_judged() {
    for (method, path, body) in [
        ("GET", "/sessions/nope", ""),
        ("GET", "/sessions/nope?usage=maybe", ""),
        ("GET", "/sessions/nope/events?after=-1", ""),
        ("DELETE", "/sessions/nope?purge=2", ""),
        ("POST", "/sessions/nope/exec", r#"{"timeout_seconds":0}"#),
        ("POST", "/sessions/nope/run", r#"{"argv":[]}"#),
        ("POST", "/sessions/nope/read", r#"{"limit":0}"#),
        ("POST", "/sessions/nope/write", "{}"),
        ("POST", "/sessions/nope/files/read", r#"{"path":"x"}"#),
        ("POST", "/sessions/nope/files/write", ""),
        ("GET", "/sessions/nope/file", ""),
        ("GET", "/sessions/nope/file?path=f", ""),
        ("HEAD", "/sessions/nope/file?path=f", ""),
        ("PUT", "/sessions/nope/file?path=f&path_b64=Zg==", ""),
        ("PUT", "/sessions/nope/file?path=f", "x"),
        ("GET", "/sessions/nope/files/watch", ""),
        ("POST", "/sessions/nope/runs", "{}"),
        ("POST", "/sessions/nope/runs/xyz/stop", ""),
        ("GET", "/sessions/nope/runs/xyz", ""),
        ("DELETE", "/sessions/nope/runs/xyz", ""),
        ("GET", "/sessions/nope/runs/xyz/output", ""),
        ("POST", "/sessions/nope/runs/xyz/stdin?close=maybe", ""),
        ("POST", "/sessions/nope/runs/xyz/signal", ""),
    ] {
        assert_eq!(call(method, path).await.status, 401, "{method} {path}");
        let told = with_token(method, path, body).await;
        assert_eq!(told.status, 404, "{method} {path}");
        assert_eq!(told.json()["detail"], "No such session: nope");
        assert_eq!(told.json()["code"], "no_session");
    }
}

#[tokio::test]
async fn an_id_that_is_the_name_of_a_route_is_an_id_all_the_same() {
    let purged = with_token("DELETE", "/workspaces/trees", "").await;
    assert_ne!(purged.status, 405);
    let listed = with_token("POST", "/workspaces/trees/tree", "{}").await;
    assert_eq!(listed.json()["code"], "no_workspaces");
    let trees = with_token("POST", "/workspaces/trees", r#"{"sessions":["a"]}"#).await;
    assert_eq!(trees.json()["results"][0]["status_code"], 409);
}

#[tokio::test]
async fn an_invalid_opening_is_refused_field_by_field() {
    let refused = with_token("POST", "/sessions", r#"{"session_id":"../x","reuse":2}"#).await;
    assert_eq!(refused.status, 422);
    let body = refused.json();
    assert_eq!(body["detail"][0]["loc"], json!(["body", "session_id"]));
    assert_eq!(body["detail"][1]["loc"], json!(["body", "reuse"]));
    assert_eq!(body["code"], "invalid_request");
    assert_eq!(body["retryable"], false);

    let refused = with_token("POST", "/sessions", "").await;
    assert_eq!(
        refused.json()["detail"],
        json!([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": null}])
    );
}

#[tokio::test]
async fn health_is_what_the_contract_shows() {
    let health = call("GET", "/healthz").await;
    let shown = serde_json::to_vec(&control().health()).unwrap();
    assert_eq!((health.status, health.body), (StatusCode::OK, shown));
}

#[tokio::test]
async fn the_index_lists_the_table() {
    let index = call("GET", "/").await.json();
    let endpoints = index["endpoints"].as_array().unwrap();
    assert!(endpoints.contains(&json!("/sessions/{session_id}/exec")));
    assert!(!endpoints.contains(&json!("/")));
    assert!(endpoints.is_sorted_by(|a, b| a.as_str() < b.as_str()));
    assert_eq!(index["ui_url"], Value::Null);
}

#[tokio::test]
async fn the_policy_is_for_the_service_token() {
    assert_eq!(call("GET", "/policy").await.status, 401);
    let policy = with_token("GET", "/policy", "").await;
    assert_eq!(policy.json(), json!(control().policy()));
}

#[tokio::test]
async fn unknown_paths_methods_and_slashes_are_told_apart() {
    let unknown = call("GET", "/nope").await;
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.json()["detail"], "Not Found");

    for (method, path, allow) in [
        ("HEAD", "/healthz", "GET"),
        ("OPTIONS", "/sessions", "GET, POST"),
        ("PUT", "/sessions/a", "DELETE, GET"),
    ] {
        let other = call(method, path).await;
        assert_eq!(other.status, 405, "{method} {path}");
        assert_eq!(other.headers["allow"], allow);
        assert_eq!(other.json()["detail"], "Method Not Allowed");
    }

    let slashed = call("GET", "/sessions/?usage=1").await;
    assert_eq!(slashed.status, 307);
    assert_eq!(slashed.headers["location"], "/sessions?usage=1");
}

#[tokio::test]
async fn a_request_id_is_taken_where_it_is_one_and_made_elsewhere() {
    let with_id = async |id: &str| {
        let builder = request("GET", "/nope").header("x-request-id", id);
        let answer = answer(builder.body(Body::empty()).unwrap()).await;
        let replied = answer.headers["x-request-id"].to_str().unwrap().to_owned();
        assert_eq!(answer.json()["request_id"], replied.as_str());
        replied
    };
    assert_eq!(with_id("r-1/2").await, "r-1/2");
    for bad in ["", "two words", &"x".repeat(65)] {
        let made = with_id(bad).await;
        assert_ne!(made, bad);
        assert_eq!(made.len(), 32);
    }
    assert!(
        call("GET", "/healthz")
            .await
            .headers
            .contains_key("x-request-id")
    );
}

#[tokio::test]
async fn a_compressed_body_is_not_taken() {
    let builder = request("POST", "/sessions").header("content-encoding", "gzip");
    assert_eq!(answer(builder.body("x".into()).unwrap()).await.status, 415);
    let builder = request("GET", "/healthz").header("content-encoding", "identity");
    assert_eq!(
        answer(builder.body(Body::empty()).unwrap()).await.status,
        200
    );
}

#[tokio::test]
async fn a_body_announced_too_large_is_refused_unread() {
    let request = request("POST", "/sessions")
        .header("x-sandbox-token", TOKEN)
        .header("content-length", JSON_BODY_BYTES_MAX + 1);
    let refused = answer(request.body(Body::empty()).unwrap()).await;
    assert_eq!(refused.status, 413);
    assert_eq!(refused.json()["code"], "body_too_large");
}

#[tokio::test]
async fn the_page_of_routes_runs_no_script() {
    let page = call("GET", "/docs").await;
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"));
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
}

#[tokio::test]
async fn the_document_of_routes_is_served() {
    let document = call("GET", "/openapi.json").await.json();
    assert_eq!(document["info"]["title"], "sandboxd");
    let paths = document["paths"].as_object().unwrap();
    assert!(TABLE.iter().all(|row| paths.contains_key(row.path)));
    assert!(find_method(&document, "/sessions", &Method::POST));
}

fn find_method(document: &Value, path: &str, method: &Method) -> bool {
    document["paths"][path][method.as_str().to_lowercase()].is_object()
}
