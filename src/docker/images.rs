//! Looks at images, and pulls them.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;

use super::body::parse;
use super::call::Call;
use super::engine::{Engine, within};
use super::error::{self, Error, Kind};
use super::lines::Lines;
use super::path::Path;

/// What the engine says of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its id on this engine.
    pub id: String,
    /// The names that it has here.
    pub tags: Vec<String>,
    /// The digests under which registries know it.
    pub digests: Vec<String>,
    /// The user of its processes; empty is root.
    pub user: String,
    /// Where its processes begin; empty is the root directory.
    pub working_dir: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it takes on disk, in bytes.
    pub size_bytes: u64,
}

/// A reference, split as a pull wants it.
#[derive(Debug, PartialEq, Eq)]
struct Reference<'a> {
    name: &'a str,
    /// A tag, or a digest such as `sha256:…`.
    version: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ImageBody {
    id: String,
    repo_tags: Option<Vec<String>>,
    repo_digests: Option<Vec<String>>,
    config: Option<ConfigBody>,
    #[serde(default)]
    size: u64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConfigBody {
    #[serde(default)]
    user: String,
    #[serde(default)]
    working_dir: String,
    labels: Option<BTreeMap<String, String>>,
}

/// A line of a pull's progress; only a failure matters.
#[derive(Deserialize)]
struct ProgressBody {
    #[serde(rename = "errorDetail")]
    error_detail: Option<DetailBody>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct DetailBody {
    message: Option<String>,
}

const PULL: &str = "pull an image";

impl Engine {
    /// Looks at an image by name or id; `None` means that the engine has none such.
    pub async fn image_inspect(&self, reference: &str) -> Result<Option<Image>, Error> {
        const NAME: &str = "inspect an image";
        let path = Path::new(&["images", reference, "json"]);
        match self
            .call(Call::get(NAME, path, self.deadlines().look))
            .await
        {
            Ok(answer) => Image::parse(&answer.body)
                .map(Some)
                .map_err(|kind| self.failure(NAME, kind)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Pulls an image, and looks whether it is there then.
    ///
    /// A reference without tag and digest means `latest`. There is no deadline
    /// as long as the engine reports progress. An image that the registry does not
    /// have, or not for us, is an error of status 404.
    pub async fn pull(&self, reference: &str) -> Result<Image, Error> {
        let Reference { name, version } = Reference::split(reference);
        let path = Path::new(&["images", "create"])
            .with("fromImage", name)
            .with("tag", version);
        let silence = self.deadlines().pull_silence;
        let mut body = self.open(Call::post(PULL, path, silence)).await?;
        let mut lines = Lines::default();
        let fail = |kind| self.failure(PULL, kind);
        while let Some(piece) = within(silence, body.piece()).await.map_err(fail)? {
            lines.push(&piece);
            while let Some(line) = lines.line().map_err(fail)? {
                progress(&line).map_err(fail)?;
            }
        }
        if let Some(line) = lines.rest() {
            progress(&line).map_err(fail)?;
        }
        self.image_inspect(reference).await?.ok_or_else(|| {
            fail(Kind::malformed(
                "a pull that went well and brought no image",
            ))
        })
    }
}

impl<'a> Reference<'a> {
    fn split(reference: &'a str) -> Self {
        if let Some((name, digest)) = reference.split_once('@') {
            // A tag beside a digest says nothing more.
            return Self {
                name: tagged(name).map_or(name, |(name, _)| name),
                version: digest,
            };
        }
        let (name, version) = tagged(reference).unwrap_or((reference, "latest"));
        Self { name, version }
    }
}

/// Splits the tag off; a colon before the last slash belongs to a port.
fn tagged(text: &str) -> Option<(&str, &str)> {
    text.rsplit_once(':')
        .filter(|(_, tag)| !tag.is_empty() && !tag.contains('/'))
}

/// Fails if a line of progress reports a failure; the status was 200 all the same.
fn progress(line: &Bytes) -> Result<(), Kind> {
    let ProgressBody {
        error_detail,
        error,
    } = parse("the progress of a pull", line)?;
    if error_detail.is_none() && error.is_none() {
        return Ok(());
    }
    let words = error_detail.and_then(|detail| detail.message).or(error);
    Err(Kind::Reported {
        message: error::message(&words.unwrap_or_else(|| "an error without words".to_owned())),
    })
}

impl Image {
    fn parse(body: &[u8]) -> Result<Self, Kind> {
        let body: ImageBody = parse("an image", body)?;
        let config = body.config.unwrap_or_default();
        Ok(Self {
            id: body.id,
            tags: body.repo_tags.unwrap_or_default(),
            digests: body.repo_digests.unwrap_or_default(),
            user: config.user,
            working_dir: config.working_dir,
            labels: config.labels.unwrap_or_default(),
            size_bytes: body.size,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::docker::error::Retry;
    use crate::docker::testing::{Answer, FakeEngine};

    const IMAGE: &str = include_str!("../../tests/fixtures/docker/image-1.41.json");
    const PULLED: &str = "{\"status\":\"Pulling from library/x\",\"id\":\"latest\"}\r\n\
                          {\"status\":\"Status: Downloaded newer image\"}\r\n";

    fn registry(progress: Answer, then: Answer) -> FakeEngine {
        FakeEngine::new(move |line| match line.split('?').next() {
            Some("POST /v1.41/images/create") => progress.clone(),
            _ => then.clone(),
        })
    }

    #[test]
    fn a_pull_always_names_a_tag_or_a_digest() {
        for (reference, name, version) in [
            ("busybox", "busybox", "latest"),
            ("busybox:1.36", "busybox", "1.36"),
            ("busybox:", "busybox:", "latest"),
            ("host:5000/a/b", "host:5000/a/b", "latest"),
            ("host:5000/a/b:v1", "host:5000/a/b", "v1"),
            ("a/b@sha256:0f", "a/b", "sha256:0f"),
            ("host:5000/a/b:v1@sha256:0f", "host:5000/a/b", "sha256:0f"),
        ] {
            assert_eq!(Reference::split(reference), Reference { name, version });
        }
    }

    #[tokio::test]
    async fn a_pull_reads_to_the_end_and_confirms_what_it_brought() {
        let bytes = PULLED.as_bytes();
        for size in [1, 7, bytes.len()] {
            let fake = registry(Answer::chunked(bytes.chunks(size)), Answer::new(200, IMAGE));
            let image = fake.client().pull("host:5000/x").await.unwrap();
            assert!(image.id.starts_with("sha256:e4f23f"));
            assert_eq!(
                fake.lines()[1..],
                [
                    "POST /v1.41/images/create?fromImage=host%3A5000%2Fx&tag=latest",
                    "GET /v1.41/images/host%3A5000%2Fx/json"
                ]
            );
        }
    }

    #[tokio::test]
    async fn a_failure_inside_a_pull_that_began_well_is_a_failure() {
        for last in [
            r#"{"errorDetail":{"message":"toomanyrequests: slow down"},"error":"x"}"#,
            "{\"errorDetail\":{\"message\":\"toomanyrequests: slow down\"}}\r\n",
            "{\"error\":\"toomanyrequests: slow down\"}\r\n{\"status\":\"bye\"}\r\n",
        ] {
            let fake = registry(Answer::chunked([PULLED, last]), Answer::new(200, IMAGE));
            let error = fake.client().pull("x").await.unwrap_err();
            assert_eq!(error.message(), Some("toomanyrequests: slow down"));
            assert_eq!(error.retry(), Retry::Backoff);
        }
        let fake = registry(
            Answer::chunked([r#"{"errorDetail":{}}"#]),
            Answer::new(200, IMAGE),
        );
        assert!(fake.client().pull("x").await.is_err());
    }

    #[tokio::test]
    async fn a_pull_that_is_cut_or_brings_nothing_is_a_failure() {
        let fake = registry(Answer::chunked([PULLED]).cut(5), Answer::new(200, IMAGE));
        let error = fake.client().pull("x").await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Closed { .. }));
        let missing = Answer::new(404, r#"{"message":"No such image: x"}"#);
        let fake = registry(Answer::chunked([PULLED]), missing);
        let error = fake.client().pull("x").await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Malformed { .. }));
        let refused = Answer::new(404, r#"{"message":"pull access denied for x"}"#);
        let fake = registry(refused, Answer::new(200, IMAGE));
        let error = fake.client().pull("x").await.unwrap_err();
        assert_eq!((error.status(), error.retry()), (Some(404), Retry::Never));
    }

    #[tokio::test]
    async fn a_pull_that_falls_silent_ends() {
        let silence = Answer::chunked([PULLED]).cut(5).and_hold();
        let fake = registry(silence, Answer::new(200, IMAGE));
        let engine = fake.hurried_client(Duration::from_secs(1));
        let error = engine.pull("x").await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Timeout { .. }));
    }

    #[tokio::test]
    async fn an_image_is_looked_up_by_its_encoded_name() {
        let fake = FakeEngine::new(|_| Answer::new(404, r#"{"message":"No such image"}"#));
        assert_eq!(fake.client().image_inspect("a/b:c").await.unwrap(), None);
        assert_eq!(fake.lines()[1], "GET /v1.41/images/a%2Fb%3Ac/json");
        let image = Image::parse(IMAGE.as_bytes()).unwrap();
        assert_eq!(image.tags, ["sandboxd-test/busybox:latest"]);
        assert_eq!((image.user.as_str(), image.size_bytes), ("", 1_984_170));
    }
}
