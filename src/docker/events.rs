//! Follows what happens to containers.
//!
//! Events are a hint and no record: an engine drops those that a slow reader does
//! not take, and remembers few. Whoever follows them lists again after each break.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::body::{Body, parse};
use super::call::Call;
use super::containers::Label;
use super::engine::Engine;
use super::error::{Error, Kind};
use super::lines::Lines;
use super::path::Path;
use crate::clock::Timestamp;

/// Something that happened to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub action: Action,
    /// The container's full id.
    pub container: String,
    /// The container's name, image and labels.
    pub attributes: BTreeMap<String, String>,
    /// When.
    pub at: Timestamp,
}

/// What can happen to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// It was started.
    Start,
    /// Its first process ended.
    Die,
    /// The kernel killed something in it; it may run on.
    Oom,
    /// It was stopped on demand.
    Stop,
    /// It was frozen.
    Pause,
    /// It runs on.
    Unpause,
    /// It was removed.
    Destroy,
}

impl Action {
    const ALL: [Self; 7] = [
        Self::Start,
        Self::Die,
        Self::Oom,
        Self::Stop,
        Self::Pause,
        Self::Unpause,
        Self::Destroy,
    ];

    /// Returns the engine's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Die => "die",
            Self::Oom => "oom",
            Self::Stop => "stop",
            Self::Pause => "pause",
            Self::Unpause => "unpause",
            Self::Destroy => "destroy",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == text)
    }
}

impl Event {
    /// Returns the exit code that came with the end of a container.
    pub fn exit_code(&self) -> Option<i64> {
        self.attributes.get("exitCode")?.parse().ok()
    }

    /// Reads a line; `None` is an event of another kind.
    fn parse(line: &[u8]) -> Result<Option<Self>, Kind> {
        let body: EventBody = parse("an event", line)?;
        let actor = body.actor.unwrap_or_default();
        let word = body.action.or(body.status).unwrap_or_default();
        // Very old engines name no kind, and speak of containers alone.
        let of_container = body.kind.is_none_or(|kind| kind == "container");
        let Some(action) = Action::parse(&word).filter(|_| of_container) else {
            return Ok(None);
        };
        let container = actor.id.or(body.id);
        let at = body.time_nano.map(|nanos| nanos / 1000);
        let at = at.or(body.time.map(|secs| secs.saturating_mul(1_000_000)));
        Ok(Some(Self {
            action,
            container: container.ok_or_else(|| Kind::malformed("an event about nothing"))?,
            attributes: actor.attributes.unwrap_or_default(),
            at: Timestamp::from_micros(at.unwrap_or(0)),
        }))
    }
}

#[derive(Deserialize)]
struct EventBody {
    #[serde(rename = "Type")]
    kind: Option<String>,
    #[serde(rename = "Action")]
    action: Option<String>,
    #[serde(rename = "Actor")]
    actor: Option<ActorBody>,
    status: Option<String>,
    id: Option<String>,
    time: Option<u64>,
    #[serde(rename = "timeNano")]
    time_nano: Option<u64>,
}

#[derive(Default, Deserialize)]
struct ActorBody {
    #[serde(rename = "ID")]
    id: Option<String>,
    #[serde(rename = "Attributes")]
    attributes: Option<BTreeMap<String, String>>,
}

/// Events as they happen.
#[derive(Debug)]
pub struct EventStream {
    body: Body,
    lines: Lines,
}

impl Engine {
    /// Follows the events of the containers that carry a label, from now on.
    pub async fn events(&self, label: &Label) -> Result<EventStream, Error> {
        let filters = serde_json::json!({
            "type": ["container"],
            "label": [label.filter()],
            "event": Action::ALL.map(Action::as_str),
        });
        let path = Path::new(&["events"]).with("filters", &filters.to_string());
        let call = Call::get("follow events", path, self.deadlines().exec_start);
        Ok(EventStream {
            body: self.open(call).await?,
            lines: Lines::default(),
        })
    }
}

impl EventStream {
    /// Waits for the next event, for however long it takes.
    ///
    /// Events have no end: when the engine ends the stream, however orderly, that
    /// is an error, and the stream is of no further use. Dropping the future loses
    /// nothing.
    pub async fn next(&mut self) -> Result<Event, Error> {
        self.step()
            .await
            .map_err(|kind| Error::new("follow events", kind))
    }

    async fn step(&mut self) -> Result<Event, Kind> {
        loop {
            while let Some(line) = self.lines.line()? {
                if let Some(event) = Event::parse(&line)? {
                    return Ok(event);
                }
            }
            match self.body.piece().await? {
                Some(piece) => self.lines.push(&piece),
                None => return Err(Kind::Closed { source: None }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::testing::{Answer, FakeEngine};

    const OLD: &[u8] = include_bytes!("../../tests/fixtures/docker/events-1.41.ndjson");
    const NEW: &[u8] = include_bytes!("../../tests/fixtures/docker/events-1.52.ndjson");

    async fn seen(answer: Answer) -> (Vec<Event>, Error) {
        let fake = FakeEngine::new(move |_| answer.clone());
        let label = Label::new("a.b", "1");
        let mut stream = fake.client().events(&label).await.unwrap();
        let mut events = Vec::new();
        loop {
            match stream.next().await {
                Ok(event) => events.push(event),
                Err(error) => return (events, error),
            }
        }
    }

    fn actions(events: &[Event]) -> Vec<Action> {
        events.iter().map(|event| event.action).collect()
    }

    #[tokio::test]
    async fn events_of_old_and_new_engines_read_the_same() {
        for stream in [OLD, NEW] {
            for size in [1, 100, stream.len()] {
                let (events, error) = seen(Answer::chunked(stream.chunks(size))).await;
                assert_eq!(actions(&events), [Action::Start, Action::Die]);
                let die = events.last().unwrap();
                assert_eq!(die.exit_code(), Some(143));
                assert_eq!(die.at, Timestamp::from_micros(1_796_015_204_946_861));
                assert!(die.container.starts_with("28ea5b6f"));
                assert!(Label::new("a.b", "1").is_in(&die.attributes));
                assert!(matches!(error.kind(), Kind::Closed { source: None }));
            }
        }
    }

    #[test]
    fn an_event_without_an_actor_is_read_by_its_old_fields() {
        let line = br#"{"status":"oom","id":"c1","from":"x","time":7}"#;
        let expected = Event {
            action: Action::Oom,
            container: "c1".to_owned(),
            attributes: BTreeMap::new(),
            at: Timestamp::from_secs(7),
        };
        assert_eq!(Event::parse(line).unwrap(), Some(expected));
        let image = br#"{"Type":"image","Action":"start","Actor":{"ID":"x"}}"#;
        assert_eq!(Event::parse(image).unwrap(), None);
        assert!(Event::parse(br#"{"Action":"die"}"#).is_err());
        assert!(Event::parse(b"{").is_err());
    }

    #[tokio::test]
    async fn a_broken_stream_is_an_error_however_it_breaks() {
        let (events, error) = seen(Answer::chunked([OLD]).cut(5)).await;
        assert_eq!(actions(&events), [Action::Start, Action::Die]);
        assert!(matches!(error.kind(), Kind::Closed { .. }));
        let (events, error) = seen(Answer::chunked([&b"not json\n"[..]])).await;
        assert!(events.is_empty());
        assert!(matches!(error.kind(), Kind::Malformed { .. }));
        let long = vec![b'x'; 2 << 20];
        let (_, error) = seen(Answer::chunked([long])).await;
        assert!(matches!(error.kind(), Kind::TooLarge { .. }));
    }

    #[tokio::test]
    async fn only_the_wanted_events_are_asked_for_and_a_dropped_stream_hangs_up() {
        let mut fake = FakeEngine::new(|_| Answer::chunked([OLD]).cut(5).and_hold());
        let label = Label::new("a", "b");
        let mut stream = fake.client().events(&label).await.unwrap();
        stream.next().await.unwrap();
        drop(stream);
        let line = fake.hung_up().await;
        let decoded = percent_encoding::percent_decode_str(&line).decode_utf8_lossy();
        assert_eq!(
            decoded,
            r#"GET /v1.41/events?filters={"event":["start","die","oom","stop","pause","unpause","destroy"],"label":["a=b"],"type":["container"]}"#
        );
    }
}
