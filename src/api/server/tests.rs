//! Holds the server to its bounds, its deadlines and its stopping.

use axum::routing::on;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::testing::{LONG, Served, get};
use super::*;
use crate::api::routes::{Route, Verb};

const SHORT: Duration = Duration::from_millis(150);

static TEST_TABLE: &[Route] = &[
    Route::new(Verb::Get, "/fast", "", |verb| on(verb, async || "fast")).public(),
    Route::new(Verb::Get, "/slow", "", |verb| on(verb, slow)).public(),
    Route::new(Verb::Get, "/stuck", "", |verb| {
        on(verb, std::future::pending::<()>)
    })
    .public(),
    Route::new(Verb::Get, "/onward", "", |verb| on(verb, goes_onward)).public(),
    Route::new(Verb::Get, "/panic", "", |verb| on(verb, panics)).public(),
];

async fn slow() -> &'static str {
    sleep(SHORT * 2).await;
    "slow"
}

/// Upgrades the connection, and echoes on it until the server stops.
async fn goes_onward(mut request: Request<Body>) -> axum::http::Response<Body> {
    let handover = request.extensions_mut().remove::<Handover>().unwrap();
    let upgrade = hyper::upgrade::on(&mut request);
    let stop = handover.stop();
    handover.put(Box::pin(async move {
        let mut stream = TokioIo::new(upgrade.await.unwrap());
        let mut bytes = [0; 16];
        loop {
            tokio::select! {
                () = stop.cancelled() => return stream.write_all(b"bye").await.unwrap(),
                read = stream.read(&mut bytes) => match read {
                    Ok(n) if 0 < n => stream.write_all(&bytes[..n]).await.unwrap(),
                    Ok(_) | Err(_) => return,
                },
            }
        }
    }));
    let reply = axum::http::Response::builder().status(101);
    let reply = reply.header("connection", "upgrade").header("upgrade", "x");
    reply.body(Body::empty()).unwrap()
}

async fn panics() -> &'static str {
    panic!("on purpose")
}

async fn served(settings: Settings) -> Served {
    testing::served(TEST_TABLE, settings).await
}

fn settings() -> Settings {
    Settings {
        connections_max: 16,
        full_timeout: LONG,
        body_bytes_max: 0,
        header_timeout: LONG,
        idle_timeout: LONG,
        unread_timeout: LONG,
        drain_timeout: LONG,
    }
}

async fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    timeout(LONG, stream.read_to_string(&mut text))
        .await
        .expect("the connection ends in time")
        .unwrap_or_default();
    text
}

async fn some(stream: &mut TcpStream) -> String {
    let mut buffer = [0; 4096];
    let n = timeout(LONG, stream.read(&mut buffer))
        .await
        .unwrap()
        .unwrap();
    String::from_utf8(buffer[..n].to_vec()).unwrap()
}

#[tokio::test]
async fn half_a_request_line_is_closed_at_the_deadline() {
    let served = served(Settings {
        header_timeout: SHORT,
        ..settings()
    })
    .await;
    let began = Instant::now();
    let stream = served.send("GET /fa").await;
    assert_eq!(rest(stream).await, "");
    assert!(SHORT <= began.elapsed());
}

#[tokio::test]
async fn an_idle_connection_outlives_the_header_deadline_and_is_closed_at_its_own() {
    let served = served(Settings {
        header_timeout: SHORT,
        idle_timeout: SHORT * 6,
        ..settings()
    })
    .await;
    let mut stream = served.send(&get("/fast")).await;
    assert!(some(&mut stream).await.ends_with("fast"));
    sleep(SHORT * 3).await;
    stream.write_all(get("/fast").as_bytes()).await.unwrap();
    assert!(some(&mut stream).await.ends_with("fast"));
    assert_eq!(rest(stream).await, "");
}

#[tokio::test]
async fn a_connection_over_the_cap_waits_until_another_ends() {
    let served = served(Settings {
        connections_max: 1,
        ..settings()
    })
    .await;
    let mut first = served.send(&get("/fast")).await;
    some(&mut first).await;
    let mut second = served.send(&get("/fast")).await;
    let mut byte = [0; 1];
    let early = timeout(SHORT, second.read(&mut byte)).await;
    assert!(early.is_err(), "the second connection is not served yet");
    drop(first);
    assert!(some(&mut second).await.ends_with("fast"));
}

#[tokio::test]
async fn a_connection_that_waited_in_vain_is_told_so_and_the_next_ones_at_once() {
    let served = served(Settings {
        connections_max: 1,
        full_timeout: SHORT,
        ..settings()
    })
    .await;
    let mut first = served.send(&get("/fast")).await;
    some(&mut first).await;
    for _ in 0..2 * SHED_MAX {
        let reply = rest(served.send(&get("/fast")).await).await;
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 "), "{reply}");
        assert!(head.contains("\r\nretry-after: "), "{reply}");
        assert!(head.contains("\r\nx-request-id: "), "{reply}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["code"], "connection_ceiling");
        assert_eq!(
            body["ceiling"],
            serde_json::json!({"name": "max_connections", "limit": 1, "used": 1, "scope": "service"})
        );
    }
    // One that has a place keeps it, and the place is taken again once it is free.
    first.write_all(get("/fast").as_bytes()).await.unwrap();
    assert!(some(&mut first).await.ends_with("fast"));
    drop(first);
    // The place is free a moment after the end of its connection was seen.
    let answered = async {
        loop {
            let reply = some(&mut served.send(&get("/fast")).await).await;
            if reply.ends_with("fast") {
                return;
            }
        }
    };
    timeout(LONG, answered).await.unwrap();
}

async fn upgraded(served: &Served) -> TcpStream {
    let asked = "GET /onward HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    let mut stream = served.send(asked).await;
    assert!(some(&mut stream).await.starts_with("HTTP/1.1 101 "));
    stream
}

#[tokio::test]
async fn an_upgraded_connection_counts_and_has_no_deadline_of_requests() {
    let served = served(Settings {
        connections_max: 1,
        full_timeout: SHORT,
        header_timeout: SHORT,
        idle_timeout: SHORT,
        ..settings()
    })
    .await;
    let mut stream = upgraded(&served).await;
    stream.write_all(b"one").await.unwrap();
    assert_eq!(some(&mut stream).await, "one");
    sleep(SHORT * 4).await;
    let reply = rest(served.send(&get("/fast")).await).await;
    assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
    stream.write_all(b"two").await.unwrap();
    assert_eq!(some(&mut stream).await, "two");
    drop(stream);
    let answered = async {
        while !some(&mut served.send(&get("/fast")).await)
            .await
            .ends_with("fast")
        {}
    };
    timeout(LONG, answered).await.unwrap();
}

#[tokio::test]
async fn an_upgraded_connection_is_told_that_the_server_stops_and_is_waited_for() {
    let served = served(settings()).await;
    let stream = upgraded(&served).await;
    let (drained, said) = tokio::join!(served.stop(), rest(stream));
    assert_eq!(said, "bye");
    assert_eq!(drained, Drained { dropped: 0 });
}

#[tokio::test]
async fn requests_in_flight_are_answered_while_the_server_drains() {
    let served = served(settings()).await;
    let idle = served.connect().await;
    let mut busy = served.send(&get("/slow")).await;
    sleep(SHORT).await;
    let address = served.address;
    let (drained, reply) = tokio::join!(served.stop(), some(&mut busy));
    assert!(reply.ends_with("slow"), "{reply}");
    assert_eq!(drained, Drained { dropped: 0 });
    assert_eq!(rest(idle).await, "", "an idle connection is closed");
    assert!(
        TcpStream::connect(address).await.is_err(),
        "nothing listens"
    );
}

#[tokio::test]
async fn what_outlasts_the_drain_time_is_dropped_and_counted() {
    let served = served(Settings {
        drain_timeout: SHORT,
        ..settings()
    })
    .await;
    let stuck = served.send(&get("/stuck")).await;
    sleep(SHORT).await;
    assert_eq!(served.stop().await, Drained { dropped: 1 });
    assert_eq!(rest(stuck).await, "");
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_connection_lives_on() {
    let served = served(settings()).await;
    let mut stream = served.send(&get("/panic")).await;
    let reply = some(&mut stream).await;
    assert!(reply.starts_with("HTTP/1.1 500 "), "{reply}");
    assert!(reply.contains(r#""code":"internal_error""#), "{reply}");
    assert!(!reply.contains("on purpose"), "{reply}");
    stream.write_all(get("/fast").as_bytes()).await.unwrap();
    assert!(some(&mut stream).await.ends_with("fast"));
}

#[tokio::test]
async fn a_refusal_before_the_body_has_come_leaves_the_connection_to_the_next_request() {
    let served = testing::served(TABLE, settings()).await;
    let head = |rest: &str| format!("POST /sessions HTTP/1.1\r\nhost: x\r\n{rest}\r\n\r\n");
    for (rest, body) in [
        ("content-length: 12", r#"{"alias":""}"#),
        ("transfer-encoding: chunked", "2\r\n{}\r\n0\r\n\r\n"),
    ] {
        let mut stream = served.send(&head(rest)).await;
        sleep(SHORT).await;
        stream.write_all(body.as_bytes()).await.unwrap();
        let reply = some(&mut stream).await;
        assert!(reply.starts_with("HTTP/1.1 401 "), "{rest}: {reply}");
        stream.write_all(get("/healthz").as_bytes()).await.unwrap();
        let reply = some(&mut stream).await;
        assert!(reply.starts_with("HTTP/1.1 200 "), "{rest}: {reply}");
    }
    // More than is worth reading ends the connection, and says so.
    let stream = served.send(&head("content-length: 10000000")).await;
    let reply = rest(stream).await;
    assert!(reply.starts_with("HTTP/1.1 401 "), "{reply}");
    assert!(reply.contains("connection: close"), "{reply}");
    // Who asks whether to send his body is not waited for.
    let asks = head("content-length: 12\r\nexpect: 100-continue");
    let mut stream = served.send(&asks).await;
    let began = Instant::now();
    assert!(some(&mut stream).await.starts_with("HTTP/1.1 401 "));
    assert!(began.elapsed() < SHORT * 4);
}

#[tokio::test]
async fn a_request_of_http_1_1_has_exactly_one_host() {
    let served = served(settings()).await;
    for (head, status) in [
        ("GET /fast HTTP/1.1\r\n\r\n", "400"),
        ("GET /fast HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n", "400"),
        ("GET /fast HTTP/1.1\r\nhost: a\r\n\r\n", "200"),
        ("GET /fast HTTP/1.0\r\n\r\n", "200"),
        ("GET /fast HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n", "400"),
    ] {
        let mut stream = served.send(head).await;
        let reply = some(&mut stream).await;
        assert_eq!(reply.split(' ').nth(1), Some(status), "{head:?}: {reply}");
    }
}

#[tokio::test]
async fn too_many_or_too_large_headers_are_refused() {
    let served = served(settings()).await;
    let many = "a: b\r\n".repeat(HEADERS_MAX);
    let large = format!("a: {}\r\n", "b".repeat(HEAD_BYTES_MAX));
    for headers in [many, large] {
        let mut stream = served
            .send(&format!("GET /fast HTTP/1.1\r\nhost: x\r\n{headers}\r\n"))
            .await;
        let reply = some(&mut stream).await;
        assert!(reply.starts_with("HTTP/1.1 431 "), "{reply:?}");
    }
}
