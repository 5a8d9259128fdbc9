//! Keeps what happened, and tells those who follow it.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::http::{Asked, Kept, chunk, head};
use super::model::{Container, Shared};
use crate::support::fault::received_until_closed;

/// Events that are told again to who asks for the past.
const REMEMBERED: usize = 256;
/// Events that a slow reader can be behind.
const KEPT_MAX: usize = 1024;

/// What happened, the latest last.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// How many there were before those that are kept.
    dropped: usize,
    kept: VecDeque<Value>,
    /// Rises when the engine goes down, which ends every stream.
    pub(super) lives: u64,
}

impl Events {
    /// Notes that something happened to a container.
    pub(super) fn push(&mut self, container: &Container, action: &str, more: &[(&str, &str)]) {
        let mut attributes = container.labels.clone();
        attributes.insert("image".to_owned(), container.image.clone());
        attributes.insert("name".to_owned(), container.name.clone());
        for (name, value) in more {
            attributes.insert((*name).to_owned(), (*value).to_owned());
        }
        let now = jiff::Timestamp::now();
        self.kept.push_back(json!({
            "status": action,
            "id": container.id,
            "from": container.image,
            "Type": "container",
            "Action": action,
            "Actor": {"ID": container.id, "Attributes": attributes},
            "scope": "local",
            "time": now.as_second(),
            "timeNano": u64::try_from(now.as_nanosecond()).unwrap(),
        }));
        if KEPT_MAX < self.kept.len() {
            self.kept.pop_front();
            self.dropped += 1;
        }
    }

    /// Forgets everything, and ends all streams.
    pub(super) fn go_down(&mut self) {
        self.dropped += self.kept.len();
        self.kept.clear();
        self.lives += 1;
    }

    fn end(&self) -> usize {
        self.dropped + self.kept.len()
    }

    fn after(&self, seen: usize) -> impl Iterator<Item = &Value> {
        self.kept.iter().skip(seen.saturating_sub(self.dropped))
    }
}

/// Tells events until the client leaves, the engine goes down, or `until` is past.
pub(super) fn follow(shared: &Arc<Shared>, asked: &Asked, mut client: &UnixStream) -> Kept {
    let filters = match asked.filters() {
        Ok(filters) => filters,
        Err(reply) => return reply.write(client),
    };
    let begun = head(200, Some("application/json")) + "Transfer-Encoding: chunked\r\n\r\n";
    let has_left = Arc::new(AtomicBool::new(false));
    {
        let (Ok(client), shared) = (client.try_clone(), Arc::clone(shared)) else {
            return Kept::No;
        };
        let has_left = Arc::clone(&has_left);
        thread::spawn(move || {
            received_until_closed(&client);
            has_left.store(true, Ordering::SeqCst);
            let model = shared.model();
            shared.changed.notify_all();
            drop(model);
        });
    }
    let mut model = shared.model();
    let lives = model.events.lives;
    let mut seen = match asked.query.get("since") {
        Some(_) => model.events.end().saturating_sub(REMEMBERED),
        None => model.events.end(),
    };
    if client.write_all(begun.as_bytes()).is_err() {
        return Kept::No;
    }
    loop {
        let text: String = model
            .events
            .after(seen)
            .filter(|event| fits(event, &filters))
            .map(|event| chunk(&format!("{event}\n")))
            .collect();
        seen = model.events.end();
        let is_past = asked.query.contains_key("until");
        if client.write_all(text.as_bytes()).is_err()
            || model.events.lives != lives
            || has_left.load(Ordering::SeqCst)
        {
            return Kept::No;
        }
        if is_past {
            drop(client.write_all(b"0\r\n\r\n"));
            return Kept::No;
        }
        model = shared.changed.wait(model).unwrap();
    }
}

fn fits(event: &Value, filters: &BTreeMap<String, Vec<String>>) -> bool {
    filters.iter().all(|(name, values)| {
        values.is_empty()
            || match name.as_str() {
                "label" => values.iter().all(|label| {
                    let labels = &event["Actor"]["Attributes"];
                    match label.split_once('=') {
                        Some((name, value)) => labels[name] == value,
                        None => !labels[label.as_str()].is_null(),
                    }
                }),
                "type" => values.iter().any(|kind| event["Type"] == *kind),
                "container" => values.iter().any(|wanted| {
                    event["id"] == *wanted || event["Actor"]["Attributes"]["name"] == *wanted
                }),
                "event" => values.iter().any(|wanted| {
                    let action = event["Action"].as_str().unwrap_or_default();
                    action.split(':').next() == Some(wanted)
                }),
                _ => true,
            }
    })
}
