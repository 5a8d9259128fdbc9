//! Closing sessions and removing what they had.

use expect_test::expect;
use serde_json::{Value, json};

use super::{Person, check, no_content, ran, ran_once, run_as};
use crate::client::scripted::{Reply, Scripted};

#[tokio::test]
async fn purge_refuses_without_yes_where_nobody_can_be_asked() {
    let server = Scripted::serve([]).await;
    for arguments in [&["purge", "a"][..], &["rm", "--purge", "a"]] {
        let ran = ran(&server, arguments).await;
        check(
            &ran,
            &expect![[r"
            --
            error: nothing is removed without a confirmation, and there is no terminal to ask on
            hint: --yes confirms it
            --
            exit 2
        "]],
        );
    }
    assert_eq!(server.lines(), [""; 0]);
}

#[tokio::test]
async fn purge_goes_ahead_only_on_a_yes() {
    let server = Scripted::serve([no_content(), no_content()]).await;
    for (typed, exit) in [
        ("y\n", 0),
        ("YES\n", 0),
        ("n\n", 2),
        ("\n", 2),
        ("", 2),
        ("yess\n", 2),
    ] {
        let ran = run_as(Person::Typing(typed), &server.url, &["purge", "a"]).await;
        assert_eq!(ran.exit, exit, "{typed:?}");
        assert!(
            ran.stderr
                .starts_with("remove everything that a ever had? [y/N] ")
        );
    }
    assert_eq!(server.lines(), ["DELETE /workspaces/a"; 2]);
}

#[tokio::test]
async fn a_token_on_standard_input_leaves_nobody_to_ask() {
    let server = Scripted::serve([]).await;
    let arguments = ["purge", "a", "--token-file", "-"];
    let ran = run_as(Person::Typing("token\n"), &server.url, &arguments).await;
    assert_eq!((ran.exit, server.lines().len()), (2, 0));
}

#[tokio::test]
async fn rm_closes_without_asking_and_keeps_files() {
    let server = Scripted::serve([no_content(), no_content(), no_content()]).await;
    assert_eq!(ran(&server, &["rm", "a", "b"]).await.stdout, "a\nb\n");
    ran(&server, &["rm", "--purge", "--yes", "a"]).await;
    assert_eq!(
        server.lines(),
        [
            "DELETE /sessions/a",
            "DELETE /sessions/b",
            "DELETE /sessions/a?purge=true"
        ]
    );
}

#[tokio::test]
async fn a_removal_that_fails_in_part_says_so_for_each_and_ends_with_1() {
    let replies = [
        no_content(),
        Reply::refusal(409, "Session is open: b"),
        Reply::refusal(500, "disk on fire"),
        no_content(),
    ];
    let server = Scripted::serve(replies).await;
    let mut ran = ran(&server, &["purge", "--yes", "--close", "a", "b", "c", "d"]).await;
    let request = server.seen()[2].header("x-request-id").unwrap().to_owned();
    ran.stderr = ran.stderr.replace(&request, "REQUEST");
    check(
        &ran,
        &expect![[r"
        a
        d
        --
        error: b: Session is open: b
        error: c: disk on fire (status 500, request REQUEST)
        --
        exit 1
    "]],
    );
}

#[tokio::test]
async fn a_removal_whose_failures_are_all_alike_ends_as_each_of_them_would() {
    let gone = || Reply::refusal(404, "No such session");
    let one = ran_once(gone(), &["rm", "a"]).await;
    let server = Scripted::serve([gone(), gone()]).await;
    let two = ran(&server, &["rm", "a", "b"]).await;
    assert_eq!((one.exit, two.exit), (3, 3));
}

#[tokio::test]
async fn a_removal_stops_where_trying_on_is_pointless() {
    let server = Scripted::serve([no_content(), Reply::HangUp]).await;
    let ran = ran(&server, &["rm", "-o", "json", "a", "b", "c"]).await;
    assert_eq!((ran.exit, server.lines().len()), (1, 2));
    assert!(
        ran.stderr.contains("note: 1 more were not tried"),
        "{}",
        ran.stderr
    );
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(told[0]["removed"], json!(true));
    assert_eq!(told[1]["code"], json!("unreachable"));
}
