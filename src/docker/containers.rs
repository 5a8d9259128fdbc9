//! Creates, starts, stops, removes and looks at containers.
//!
//! Each call names its outcomes. Those that mean "it is so already" are outcomes
//! and not errors, which is what makes a repeated call harmless.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::StatusCode;
use serde::Deserialize;

use super::body::{LIST_BYTES_MAX, parse};
use super::call::{Answer, Call};
use super::engine::Engine;
use super::error::{Error, Kind};
use super::inspect::{Inspect, Summary};
use super::path::Path;
use super::spec::CreateBody;

/// A label with its value, by which containers are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    key: String,
    value: String,
}

impl Label {
    /// Makes a label.
    pub fn new(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
        }
    }

    /// Tells whether it is among `labels`.
    pub fn is_in(&self, labels: &BTreeMap<String, String>) -> bool {
        labels.get(&self.key) == Some(&self.value)
    }

    /// Writes the engine's filter by this label.
    pub(super) fn filter(&self) -> String {
        format!("{}={}", self.key, self.value)
    }
}

/// What became of a creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// There is a new container of this id.
    New(String),
    /// Another container has the name.
    NameTaken,
    /// The engine does not have the image.
    NoSuchImage,
}

/// What became of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It was started.
    Now,
    /// It was running.
    Already,
    /// There is no such container.
    Gone,
}

/// What became of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It was stopped.
    Now,
    /// It was not running.
    Already,
    /// There is no such container.
    Gone,
}

/// What became of an unpausing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpaused {
    /// It runs on.
    Now,
    /// It was not paused; it may run or not.
    NotPaused,
    /// There is no such container.
    Gone,
}

/// What became of a renaming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// It has the new name.
    Now,
    /// Another container has the name.
    NameTaken,
    /// There is no such container.
    Gone,
}

/// What became of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It was removed.
    Now,
    /// There is no such container.
    Gone,
    /// Somebody else's removal is under way.
    InProgress,
}

/// Whether a running container is killed to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// It is killed.
    Yes,
    /// The removal fails.
    No,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CreatedBody {
    id: String,
}

const LIST: &str = "list containers";

fn container(id: &str, verb: &str) -> Path {
    Path::new(&["containers", id, verb])
}

/// What the engine answers to a change: done, or so already.
const DONE: [StatusCode; 2] = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];

impl Engine {
    /// Changes a container. Whoever answers anything but what the engine does, be it
    /// with success, is something else in its place.
    async fn change(&self, name: &'static str, call: Call) -> Result<Answer, Error> {
        let answer = self.call(call).await?;
        if DONE.contains(&answer.status) {
            return Ok(answer);
        }
        let what = format!("a change with status {}", answer.status);
        Err(self.failure(name, Kind::malformed(what)))
    }

    /// Creates a container of that name.
    ///
    /// After an error the container may exist all the same: look by its name.
    pub async fn create(&self, name: &str, body: &CreateBody) -> Result<Created, Error> {
        const NAME: &str = "create a container";
        let path = Path::new(&["containers", "create"]).with("name", name);
        let call = Call::post(NAME, path, self.deadlines().create).json(body);
        match self.call(call).await {
            Ok(answer) => parse("a new container", &answer.body)
                .map(|CreatedBody { id }| Created::New(id))
                .map_err(|kind| self.failure(NAME, kind)),
            Err(error) => match error.status() {
                Some(404) if error.says("no such image") => Ok(Created::NoSuchImage),
                Some(409) => Ok(Created::NameTaken),
                _ => Err(error),
            },
        }
    }

    /// Starts a container.
    pub async fn start(&self, id: &str) -> Result<Started, Error> {
        const NAME: &str = "start a container";
        let path = container(id, "start");
        let call = Call::post(NAME, path, self.deadlines().start);
        match self.change(NAME, call).await {
            Ok(answer) if answer.status == StatusCode::NOT_MODIFIED => Ok(Started::Already),
            Ok(_) => Ok(Started::Now),
            // A network that is gone is a 404 too, in other words.
            Err(error) if error.is_missing() => Ok(Started::Gone),
            Err(error) => Err(error),
        }
    }

    /// Stops a container: the engine asks it to end, and kills it after `grace`.
    ///
    /// The grace counts in whole seconds, rounded up. A paused container is
    /// stopped as well.
    pub async fn stop(&self, id: &str, grace: Duration) -> Result<Stopped, Error> {
        const NAME: &str = "stop a container";
        let round_up = u64::from(0 < grace.subsec_nanos());
        let grace_secs = grace.as_secs().saturating_add(round_up);
        let path = container(id, "stop").with("t", &grace_secs.to_string());
        let deadline = grace.saturating_add(self.deadlines().stop_slack);
        let call = Call::post(NAME, path, deadline);
        match self.change(NAME, call).await {
            Ok(answer) if answer.status == StatusCode::NOT_MODIFIED => Ok(Stopped::Already),
            Ok(_) => Ok(Stopped::Now),
            Err(error) if error.is_missing() => Ok(Stopped::Gone),
            Err(error) => Err(error),
        }
    }

    /// Lets a paused container run on.
    pub async fn unpause(&self, id: &str) -> Result<Unpaused, Error> {
        const NAME: &str = "unpause a container";
        let path = container(id, "unpause");
        let call = Call::post(NAME, path, self.deadlines().start);
        match self.change(NAME, call).await {
            Ok(_) => Ok(Unpaused::Now),
            Err(error) if error.is_missing() => Ok(Unpaused::Gone),
            Err(error) if error.says("not paused") => Ok(Unpaused::NotPaused),
            Err(error) => Err(error),
        }
    }

    /// Gives a container another name; its labels stay.
    pub async fn rename(&self, id: &str, name: &str) -> Result<Renamed, Error> {
        const NAME: &str = "rename a container";
        let path = container(id, "rename").with("name", name);
        let call = Call::post(NAME, path, self.deadlines().create);
        match self.change(NAME, call).await {
            Ok(_) => Ok(Renamed::Now),
            Err(error) => match error.status() {
                Some(404) if error.is_missing() => Ok(Renamed::Gone),
                Some(409) => Ok(Renamed::NameTaken),
                _ => Err(error),
            },
        }
    }

    /// Removes a container with its anonymous volumes; bound directories stay.
    pub async fn remove(&self, id: &str, force: Force) -> Result<Removed, Error> {
        const NAME: &str = "remove a container";
        let force = match force {
            Force::Yes => "1",
            Force::No => "0",
        };
        let path = Path::new(&["containers", id])
            .with("force", force)
            .with("v", "1");
        let call = Call::delete(NAME, path, self.deadlines().remove);
        match self.change(NAME, call).await {
            Ok(_) => Ok(Removed::Now),
            Err(error) => match error.status() {
                Some(404) if error.is_missing() => Ok(Removed::Gone),
                Some(409) if error.says("in progress") => Ok(Removed::InProgress),
                _ => Err(error),
            },
        }
    }

    /// Looks at a container by id or name; `None` is the engine's word that it is not there.
    pub async fn inspect(&self, id_or_name: &str) -> Result<Option<Inspect>, Error> {
        const NAME: &str = "inspect a container";
        let path = container(id_or_name, "json");
        match self
            .call(Call::get(NAME, path, self.deadlines().look))
            .await
        {
            Ok(answer) => Inspect::parse(&answer.body)
                .map(Some)
                .map_err(|kind| self.failure(NAME, kind)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists all containers that carry a label, in whatever state.
    ///
    /// The list is whole: a reply that is cut, too long or not understood, or that
    /// names a container without the label, is an error.
    pub async fn list(&self, label: &Label) -> Result<Vec<Summary>, Error> {
        let filters = serde_json::json!({ "label": [label.filter()] });
        let list = self.list_by(&filters).await?;
        if list.iter().all(|line| label.is_in(&line.labels)) {
            return Ok(list);
        }
        Err(self.failure(
            LIST,
            Kind::malformed("a list that the label did not filter"),
        ))
    }

    /// Lists all containers whose names begin with `prefix`, whoever made them.
    ///
    /// The list is as whole as that of [`Self::list`]. `prefix` holds no character
    /// that means something to a regular expression.
    pub async fn list_named(&self, prefix: &str) -> Result<Vec<Summary>, Error> {
        let filters = serde_json::json!({ "name": [format!("^/?{prefix}")] });
        let mut list = self.list_by(&filters).await?;
        list.retain(|line| line.name.starts_with(prefix));
        Ok(list)
    }

    async fn list_by(&self, filters: &serde_json::Value) -> Result<Vec<Summary>, Error> {
        let path = Path::new(&["containers", "json"])
            .with("all", "1")
            .with("filters", &filters.to_string());
        let call = Call::get(LIST, path, self.deadlines().look).answer_bytes_max(LIST_BYTES_MAX);
        let answer = self.call(call).await?;
        let list = if answer.status == StatusCode::OK {
            Summary::parse_list(&answer.body)
        } else {
            Err(Kind::malformed(format!(
                "a list with status {}",
                answer.status
            )))
        };
        list.map_err(|kind| self.failure(LIST, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::error::Retry;
    use crate::docker::testing::{Answer, FakeEngine};

    fn refusing(status: u16, message: &'static str) -> FakeEngine {
        FakeEngine::new(move |_| {
            Answer::new(
                status,
                serde_json::json!({ "message": message }).to_string(),
            )
        })
    }

    async fn create(fake: &FakeEngine) -> Result<Created, Error> {
        fake.client().create("n", &CreateBody::default()).await
    }

    #[tokio::test]
    async fn a_creation_tells_what_became_of_it() {
        let fake = FakeEngine::new(|_| Answer::new(201, r#"{"Id":"abc","Warnings":null}"#));
        assert_eq!(create(&fake).await.unwrap(), Created::New("abc".to_owned()));
        let request = fake.requests().pop().unwrap();
        assert_eq!(request.line, "POST /v1.41/containers/create?name=n");
        assert_eq!(request.body, r#"{"Image":"","HostConfig":{}}"#);

        let fake = refusing(409, "Conflict. The container name is already in use");
        assert_eq!(create(&fake).await.unwrap(), Created::NameTaken);
        let fake = refusing(404, "No such image: x:latest");
        assert_eq!(create(&fake).await.unwrap(), Created::NoSuchImage);
        let fake = refusing(404, "something else is missing");
        assert_eq!(create(&fake).await.unwrap_err().retry(), Retry::Never);
        let fake = refusing(500, "write: no space left on device");
        let error = create(&fake).await.unwrap_err();
        assert!(error.is_no_space());
        assert_eq!(error.retry(), Retry::Backoff);
    }

    #[tokio::test]
    async fn a_start_or_stop_that_changes_nothing_is_no_error() {
        let grace = Duration::from_millis(1500);
        for (answer, started, stopped) in [
            (Answer::empty(204), Started::Now, Stopped::Now),
            (Answer::empty(304), Started::Already, Stopped::Already),
            (
                Answer::new(404, r#"{"message":"No such container: c"}"#),
                Started::Gone,
                Stopped::Gone,
            ),
        ] {
            let fake = FakeEngine::new(move |_| answer.clone());
            assert_eq!(fake.client().start("c").await.unwrap(), started);
            assert_eq!(fake.client().stop("c", grace).await.unwrap(), stopped);
            let last = fake.lines().pop().unwrap();
            assert_eq!(last, "POST /v1.41/containers/c/stop?t=2");
        }
    }

    #[tokio::test]
    async fn a_success_that_is_not_the_engine_s_is_no_success() {
        let fake = FakeEngine::new(|_| Answer::new(200, "<html>It works!</html>"));
        let client = fake.client();
        for error in [
            client.start("c").await.unwrap_err(),
            client.stop("c", Duration::ZERO).await.unwrap_err(),
            client.unpause("c").await.unwrap_err(),
            client.rename("c", "d").await.unwrap_err(),
            client.remove("c", Force::Yes).await.unwrap_err(),
        ] {
            assert!(matches!(error.kind(), Kind::Malformed { .. }), "{error:?}");
            assert_eq!(error.retry(), Retry::Backoff);
        }
    }

    #[tokio::test]
    async fn a_start_without_its_network_does_not_call_the_container_gone() {
        let fake = refusing(404, "network n1 not found");
        assert_eq!(
            fake.client().start("c").await.unwrap_err().status(),
            Some(404)
        );
    }

    #[tokio::test]
    async fn an_unpausing_of_what_is_not_paused_is_no_error() {
        let fake = refusing(500, "Container c is not paused");
        assert_eq!(
            fake.client().unpause("c").await.unwrap(),
            Unpaused::NotPaused
        );
        let fake = FakeEngine::new(|_| Answer::empty(204));
        assert_eq!(fake.client().unpause("c").await.unwrap(), Unpaused::Now);
        let fake = refusing(404, "No such container: c");
        assert_eq!(fake.client().unpause("c").await.unwrap(), Unpaused::Gone);
    }

    #[tokio::test]
    async fn a_rename_tells_a_taken_name_from_a_missing_container() {
        let fake = refusing(409, "name in use");
        assert_eq!(
            fake.client().rename("c", "n").await.unwrap(),
            Renamed::NameTaken
        );
        let fake = refusing(404, "No such container: c");
        assert_eq!(fake.client().rename("c", "n").await.unwrap(), Renamed::Gone);
    }

    #[tokio::test]
    async fn a_removal_that_is_done_or_under_way_is_no_error() {
        let fake = FakeEngine::new(|_| Answer::empty(204));
        let removed = fake.client().remove("c", Force::Yes).await.unwrap();
        assert_eq!(removed, Removed::Now);
        let last = fake.lines().pop().unwrap();
        assert_eq!(last, "DELETE /v1.41/containers/c?force=1&v=1");
        let fake = refusing(404, "No such container: c");
        let removed = fake.client().remove("c", Force::Yes).await.unwrap();
        assert_eq!(removed, Removed::Gone);
        let fake = refusing(409, "removal of container c is already in progress");
        let removed = fake.client().remove("c", Force::Yes).await.unwrap();
        assert_eq!(removed, Removed::InProgress);
        let fake = refusing(409, "You cannot remove a running container c");
        let error = fake.client().remove("c", Force::No).await.unwrap_err();
        assert_eq!(error.status(), Some(409));
    }

    #[tokio::test]
    async fn an_engine_in_trouble_never_says_that_a_container_is_gone() {
        for status in [400, 403, 404, 500, 502, 503] {
            let fake = refusing(status, "trouble");
            let engine = fake.client();
            assert!(engine.inspect("c").await.is_err());
            assert!(engine.list(&Label::new("a", "b")).await.is_err());
            assert!(engine.stop("c", Duration::ZERO).await.is_err());
            assert!(engine.remove("c", Force::Yes).await.is_err());
        }
    }

    #[tokio::test]
    async fn a_listing_is_never_empty_by_mistake() {
        let label = Label::new("io.sandboxd.instance", "0af");
        for answer in [
            Answer::new(200, ""),
            Answer::new(200, "null"),
            Answer::new(200, r#"{"message":"x"}"#),
            Answer::empty(204),
            Answer::chunked(["[", "]"]).cut(5),
            Answer::new(
                200,
                include_str!("../../tests/fixtures/docker/list-1.41.json"),
            ),
        ] {
            let fake = FakeEngine::new(move |_| answer.clone());
            assert!(fake.client().list(&label).await.is_err());
        }
        let fake = FakeEngine::new(|_| Answer::chunked(["[", " ", "]\n"]));
        assert_eq!(fake.client().list(&label).await.unwrap(), []);
        assert_eq!(
            fake.lines().pop().unwrap(),
            "GET /v1.41/containers/json?all=1&filters=\
             %7B%22label%22%3A%5B%22io.sandboxd.instance%3D0af%22%5D%7D"
        );
    }
}
