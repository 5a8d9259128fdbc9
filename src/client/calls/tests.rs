//! Holds calls to their routes, their deadlines and their bounds.

use super::*;
use crate::client::REPLY_BYTES_MAX;
use crate::client::scripted::{Reply, Scripted};

const EMPTY_LIST: &str = r#"{"sessions":[],"limit":null,"open_limit":null,"tenant_limit":null}"#;

fn id() -> SessionId {
    SessionId::parse("a").unwrap()
}

fn list() -> Reply {
    Reply::Answer(200, EMPTY_LIST.to_owned())
}

fn client(server: &Scripted) -> Client {
    Client::new(Endpoint::parse(&server.url).unwrap())
}

#[tokio::test]
async fn every_call_goes_to_its_route() {
    let server = Scripted::serve([]).await;
    let client = client(&server);
    let options = ListOptions {
        usage: Usage::Sample,
        tenant: Some(Tenant::parse("t1").unwrap()),
        state: Some(SessionState::Hibernated),
        limit: Some(5),
        cursor: Some("a&b=%".to_owned()),
    };
    let exec = ExecRequest {
        command: "true".to_owned(),
        timeout_seconds: None,
        ..ExecRequest::default()
    };
    client.health().await.unwrap_err();
    client.index().await.unwrap_err();
    client.policy().await.unwrap_err();
    client
        .open(&CreateSessionRequest::default())
        .await
        .unwrap_err();
    client.sessions(&ListOptions::default()).await.unwrap_err();
    client.sessions(&options).await.unwrap_err();
    client.session(&id(), Usage::Skip).await.unwrap_err();
    client.session(&id(), Usage::Sample).await.unwrap_err();
    client.events(&id(), 7, None).await.unwrap_err();
    client.events(&id(), 0, Some(2)).await.unwrap_err();
    client.close(&id(), Purge::No).await.unwrap_err();
    client.close(&id(), Purge::Yes).await.unwrap_err();
    client.purge(&id(), CloseFirst::No).await.unwrap_err();
    client.purge(&id(), CloseFirst::Yes).await.unwrap_err();
    client.exec(&id(), &exec).await.unwrap_err();
    assert_eq!(
        server.lines(),
        [
            "GET /healthz",
            "GET /",
            "GET /policy",
            "POST /sessions",
            "GET /sessions",
            "GET /sessions?usage=true&tenant=t1&state=hibernated&limit=5&cursor=a%26b%3D%25",
            "GET /sessions/a",
            "GET /sessions/a?usage=true",
            "GET /sessions/a/events?after=7",
            "GET /sessions/a/events?after=0&limit=2",
            "DELETE /sessions/a",
            "DELETE /sessions/a?purge=true",
            "DELETE /workspaces/a",
            "DELETE /workspaces/a?close=true",
            "POST /sessions/a/exec",
        ]
    );
}

#[tokio::test]
async fn calls_share_a_connection_and_each_has_a_request_id_of_its_own() {
    let server = Scripted::serve([list(), list(), list()]).await;
    let client = client(&server);
    for _ in 0..3 {
        client.sessions(&ListOptions::default()).await.unwrap();
    }
    let seen = server.seen();
    let ids: std::collections::BTreeSet<_> = seen
        .iter()
        .map(|seen| RequestId::parse(seen.header("x-request-id").unwrap()).unwrap())
        .collect();
    assert_eq!((ids.len(), server.n_connections()), (3, 1));
}

#[tokio::test]
async fn the_token_goes_into_its_header_and_nowhere_else() {
    let server = Scripted::serve([list()]).await;
    let client = client(&server)
        .with_token(&Secret::new("hunter2".to_owned()))
        .unwrap();
    client.sessions(&ListOptions::default()).await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!(seen.header("x-sandbox-token"), Some("hunter2"));
    assert!(!seen.line.contains("hunter2"));
    assert!(!format!("{client:?}").contains("hunter2"));
}

#[test]
fn a_token_that_no_header_can_carry_is_refused_without_showing_it() {
    let endpoint = Endpoint::parse("http://h").unwrap();
    let error = Client::new(endpoint)
        .with_token(&Secret::new("hunter\n2".to_owned()))
        .unwrap_err();
    assert!(matches!(error, Error::Token));
    assert!(!format!("{error} {error:?}").contains("hunter"));
}

#[tokio::test]
async fn a_service_on_a_socket_is_called_the_same_way() {
    let dir = tempfile::tempdir().unwrap();
    let server = Scripted::serve_socket(&dir.path().join("a b.sock"), [list()]);
    client(&server)
        .sessions(&ListOptions::default())
        .await
        .unwrap();
    assert_eq!(server.lines(), ["GET /sessions"]);
}

#[tokio::test]
async fn a_reply_that_does_not_come_ends_at_the_deadline() {
    let server = Scripted::serve([Reply::Hang]).await;
    let after = Duration::from_millis(20);
    let error = client(&server).with_deadline(after).health().await;
    assert!(
        matches!(error, Err(Error::Timeout { after: told }) if told == after),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_command_is_waited_for_ten_seconds_beyond_its_timeout() {
    let server = Scripted::serve([Reply::Hang]).await;
    let request = ExecRequest {
        command: "sleep 9".to_owned(),
        timeout_seconds: Some(5),
        ..ExecRequest::default()
    };
    let error = client(&server).exec(&id(), &request).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { after } if after.as_secs() == 15));
}

#[tokio::test]
async fn a_closed_port_and_a_broken_connection_are_both_unreachable() {
    let server = Scripted::serve([Reply::HangUp]).await;
    let client = client(&server);
    let error = client.health().await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("unreachable", true));
    let gone = Client::new(Endpoint::parse("unix:///nonexistent/socket").unwrap());
    assert_eq!(gone.health().await.unwrap_err().code(), "unreachable");
}

#[tokio::test]
async fn a_reply_beyond_the_bound_is_not_read_to_its_end() {
    let large = " ".repeat(REPLY_BYTES_MAX + 1);
    let server = Scripted::serve([Reply::Answer(200, large)]).await;
    let error = client(&server).health().await.unwrap_err();
    assert!(matches!(
        error,
        Error::TooLarge {
            bytes_max: REPLY_BYTES_MAX
        }
    ));
}

#[tokio::test]
async fn a_success_that_is_not_the_contract_says_which_call_it_was() {
    let server = Scripted::serve([Reply::Answer(200, "<html>".to_owned())]).await;
    let error = client(&server)
        .session(&id(), Usage::Skip)
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "understand the reply to GET /sessions/a");
}

#[tokio::test]
async fn an_answer_without_a_body_is_a_success_of_a_delete() {
    let server = Scripted::serve([Reply::Answer(204, String::new())]).await;
    client(&server).close(&id(), Purge::No).await.unwrap();
}
