//! Turns what a store holds at one moment into the lines of a backup, and back.
//!
//! Records, statuses and runs are rows; of the logs only their ends are, so that no
//! number of an event is given twice. Events stay behind: they tell what happened, and
//! nothing is decided by them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::events::{Log, Span};
use super::meta::{Meta, SCHEMA};
use super::mirror::Mirror;
use super::runs::{Place, StoredRun};
use super::tally::Tally;
use crate::clock::Timestamp;
use crate::id::{InstanceId, SessionId};
use crate::secret::TokenKey;
use crate::session::record::{Record, Status};
use crate::wire::backup::{self, Counts, Damage, FORMAT, Header, Seal, VERSION};

/// Everything that a store held at one commit, but for the events.
#[derive(Clone)]
pub struct Snapshot(pub(super) Mirror);

impl fmt::Debug for Snapshot {
    /// Shows whose it is, and nothing of what it holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("instance", &self.0.meta.instance)
            .field("commit", &self.commit())
            .finish_non_exhaustive()
    }
}

/// The rows of a backup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Row {
    Session(Box<Record>),
    Status(Box<StatusRow>),
    Run(Box<RunRow>),
    Log(LogRow),
    /// In base64.
    TokenKey(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusRow {
    session: SessionId,
    status: Status,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunRow {
    session: SessionId,
    run: StoredRun,
}

/// The end of a log: of a session, or of the service where there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogRow {
    session: Option<SessionId>,
    latest: u64,
}

/// The lines of a backup, one at a time.
pub struct Lines {
    header: Option<Header>,
    seal: Option<Seal>,
    rows: Box<dyn Iterator<Item = Row> + Send>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lines(..)")
    }
}

impl Snapshot {
    /// Returns the number of the last commit that it holds.
    pub fn commit(&self) -> u64 {
        self.0.meta.commits()
    }

    /// Returns whose it is.
    pub fn instance(&self) -> &InstanceId {
        &self.0.meta.instance
    }

    /// Returns the lines of a backup of it, with the token key where one is given.
    pub fn lines(self, taken_at: Timestamp, key: Option<&TokenKey>) -> Lines {
        let Mirror {
            meta,
            records,
            mut statuses,
            mut runs,
            logs,
        } = self.0;
        let counts = Counts {
            sessions: count(records.len()),
            statuses: count(statuses.len()),
            runs: count(runs.len()),
            logs: count(logs.len()),
            keys: u64::from(key.is_some()),
        };
        let header = header_of(&meta, taken_at, counts);
        // One after the other, so that a large store is never in memory twice.
        let sessions = records.into_iter().flat_map(move |(id, record)| {
            let status = statuses.remove(&id).map(|status| {
                Row::Status(Box::new(StatusRow {
                    session: id.clone(),
                    status: Status::clone(&status),
                }))
            });
            let own: Vec<Place> = runs.range(super::runs::of(&id)).map(key_of).collect();
            let own: Vec<Row> = own
                .iter()
                .filter_map(|place| runs.remove(place))
                .map(|run| {
                    Row::Run(Box::new(RunRow {
                        session: id.clone(),
                        run: StoredRun::clone(&run),
                    }))
                })
                .collect();
            let record = Row::Session(Box::new(Record::clone(&record)));
            [record].into_iter().chain(status).chain(own)
        });
        let logs = logs.into_iter().map(|(session, span)| {
            Row::Log(LogRow {
                session,
                latest: span.latest,
            })
        });
        let key = key.map(|key| Row::TokenKey(STANDARD.encode(key.expose())));
        Lines {
            header: Some(header),
            seal: None,
            rows: Box::new(sessions.chain(logs).chain(key)),
        }
    }
}

fn key_of((place, _): (&Place, &Arc<StoredRun>)) -> Place {
    place.clone()
}

fn header_of(meta: &Meta, taken_at: Timestamp, counts: Counts) -> Header {
    Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        schema: SCHEMA,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        instance: meta.instance.to_string(),
        taken_at,
        commit: meta.commits(),
        engine_id: meta.engine_id.clone(),
        token_key_id: meta.token_key_id.clone(),
        order: meta.order,
        counts,
    }
}

impl Iterator for Lines {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(header) = self.header.take() {
            let (seal, line) = Seal::begin(header);
            self.seal = Some(seal);
            return Some(line);
        }
        match (self.rows.next(), &mut self.seal) {
            (Some(row), Some(seal)) => Some(seal.line(&row)),
            (Some(_), None) => None,
            (None, seal) => seal.take().map(Seal::end),
        }
    }
}

/// What a backup holds, understood and checked.
#[derive(Clone)]
pub struct Contents {
    pub(super) meta: Meta,
    pub(super) records: BTreeMap<SessionId, Arc<Record>>,
    pub(super) statuses: BTreeMap<SessionId, Arc<Status>>,
    pub(super) runs: BTreeMap<Place, Arc<StoredRun>>,
    pub(super) ends: BTreeMap<Log, u64>,
    /// When the store was like that.
    pub taken_at: Timestamp,
    /// The key of its tokens, where the backup holds it.
    pub key: Option<TokenKey>,
}

impl fmt::Debug for Contents {
    /// Shows whose it is and how much, and nothing of what it holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents")
            .field("instance", &self.meta.instance)
            .field("taken_at", &self.taken_at)
            .field("n_records", &self.records.len())
            .finish_non_exhaustive()
    }
}

/// Says why a backup cannot be used. Lines are counted from 1.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It is not whole, or was changed.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// It holds a store of a later version.
    #[error(
        "use a backup of schema {found}: this build knows schema {SCHEMA}; restore it with the version that wrote it, or a later one"
    )]
    NewerSchema {
        /// Its schema.
        found: u32,
    },
    /// A row is none that this build knows.
    #[error("understand line {line} of the backup")]
    Row {
        /// Which.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// A row contradicts another one.
    #[error("use line {line} of the backup: {why}")]
    Contradiction {
        /// Which.
        line: usize,
        /// What.
        why: String,
    },
}

impl Contents {
    /// Reads a whole backup. Its digest is checked before anything else.
    pub fn read(bytes: &[u8]) -> Result<Self, BackupError> {
        let sound = backup::open(bytes)?;
        let header = sound.header;
        if SCHEMA < header.schema {
            let found = header.schema;
            return Err(BackupError::NewerSchema { found });
        }
        let instance = InstanceId::parse(&header.instance)
            .map_err(|error| contradiction(1, &error.to_string()))?;
        let mut contents = Self {
            meta: Meta {
                token_key_id: header.token_key_id,
                engine_id: header.engine_id,
                order: header.order,
                ..Meta::new(instance)
            },
            records: BTreeMap::new(),
            statuses: BTreeMap::new(),
            runs: BTreeMap::new(),
            ends: BTreeMap::new(),
            taken_at: header.taken_at,
            key: None,
        };
        for (line, row) in sound.rows {
            let row =
                serde_json::from_slice(row).map_err(|source| BackupError::Row { line, source })?;
            contents
                .take(row)
                .map_err(|why| contradiction(line, &why))?;
        }
        if contents.counts() != header.counts {
            let why = "there are not as many rows as it says";
            return Err(contradiction(1, why));
        }
        contents.meta.tally = Some(Tally::of(header.commit, &contents.mirror()));
        Ok(contents)
    }

    /// Returns whose it is.
    pub fn instance(&self) -> &InstanceId {
        &self.meta.instance
    }

    /// Returns the name of the key that its tokens are derived from.
    pub fn token_key_id(&self) -> Option<&str> {
        self.meta.token_key_id.as_deref()
    }

    /// Returns how many sessions are on record, open or not.
    pub fn n_sessions(&self) -> usize {
        self.records.len()
    }

    /// Has the tokens derived from a new key, since theirs is lost.
    pub fn void_tokens(&mut self) {
        self.meta.token_key_id = None;
        self.key = None;
    }

    /// Returns it as a store holds it that was just written, with no events yet.
    pub(super) fn mirror(&self) -> Mirror {
        Mirror {
            meta: self.meta.clone(),
            records: self.records.clone(),
            statuses: self.statuses.clone(),
            runs: self.runs.clone(),
            logs: BTreeMap::new(),
        }
    }

    /// Returns the logs, each with the one event that it begins with.
    pub(super) fn logs(&self) -> BTreeMap<Log, Span> {
        let span = |latest: u64| Span {
            first: latest + 1,
            latest: latest + 1,
        };
        let logs = self.ends.iter();
        logs.map(|(log, latest)| (log.clone(), span(*latest)))
            .collect()
    }

    fn counts(&self) -> Counts {
        Counts {
            sessions: count(self.records.len()),
            statuses: count(self.statuses.len()),
            runs: count(self.runs.len()),
            logs: count(self.ends.len()),
            keys: u64::from(self.key.is_some()),
        }
    }

    fn take(&mut self, row: Row) -> Result<(), String> {
        let known = |id: &SessionId| {
            let is_known = self.records.contains_key(id);
            is_known
                .then_some(())
                .ok_or_else(|| format!("no line before it has the record of {id}"))
        };
        let is_new = match row {
            Row::Session(record) => {
                let id = record.spec.id.clone();
                self.records.insert(id, Arc::from(record)).is_none()
            }
            Row::Status(row) => {
                known(&row.session)?;
                let status = Arc::new(row.status);
                self.statuses.insert(row.session, status).is_none()
            }
            Row::Run(row) => {
                known(&row.session)?;
                let place = (row.session, row.run.run_id.clone());
                self.runs.insert(place, Arc::new(row.run)).is_none()
            }
            Row::Log(row) => {
                row.session.as_ref().map_or(Ok(()), known)?;
                // One more has to be there for the event that it goes on with.
                if row.latest == u64::MAX {
                    return Err("no log has so many events".to_owned());
                }
                self.ends.insert(row.session, row.latest).is_none()
            }
            Row::TokenKey(text) => {
                let key = STANDARD.decode(text).ok();
                let key = key.and_then(|bytes| TokenKey::from_bytes(&bytes));
                let key = key.ok_or_else(|| "it holds no token key".to_owned())?;
                if self.meta.token_key_id.as_deref() != Some(key.id().as_str()) {
                    return Err("its token key is not the one of the header".to_owned());
                }
                self.key.replace(key).is_none()
            }
        };
        is_new
            .then_some(())
            .ok_or_else(|| "another line says the same".to_owned())
    }
}

fn contradiction(line: usize, why: &str) -> BackupError {
    BackupError::Contradiction {
        line,
        why: why.to_owned(),
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{ended_run, id, record, run};

    /// A store with two sessions, of which one has a status, runs and a log.
    fn mirror(key: &TokenKey) -> Mirror {
        let place = |n| (id("a"), run(n).run_id);
        let span = |first, latest| Span { first, latest };
        let mut mirror = Mirror::empty(Meta {
            token_key_id: Some(key.id()),
            engine_id: Some("engine /var/lib/docker".to_owned()),
            order: 9,
            ..Meta::new(InstanceId::random())
        });
        let status = Status {
            reached: 3,
            incarnation: 2,
            ..Status::default()
        };
        mirror.records = BTreeMap::from([
            (id("a"), Arc::new(record("a", 3))),
            (id("b"), Arc::new(record("b", 1))),
        ]);
        mirror.statuses = BTreeMap::from([(id("a"), Arc::new(status))]);
        mirror.runs = BTreeMap::from([
            (place(1), Arc::new(ended_run(1))),
            (place(2), Arc::new(run(2))),
        ]);
        mirror.logs = BTreeMap::from([(None, span(4, 90)), (Some(id("a")), span(1, 12))]);
        mirror.meta.tally = Some(Tally::of(41, &mirror));
        mirror
    }

    fn key() -> TokenKey {
        TokenKey::from_bytes(&[7; 32]).unwrap()
    }

    fn text(mirror: &Mirror, key: Option<&TokenKey>) -> Vec<u8> {
        let taken_at = Timestamp::from_secs(1_700_000_000);
        Snapshot(mirror.clone())
            .lines(taken_at, key)
            .flatten()
            .collect()
    }

    #[test]
    fn what_a_backup_says_is_what_the_store_held_but_for_the_events() {
        let mirror = mirror(&key());
        let read = Contents::read(&text(&mirror, None)).unwrap();
        let without_logs = Mirror {
            logs: BTreeMap::new(),
            ..mirror.clone()
        };
        assert_eq!(read.mirror(), without_logs);
        assert_eq!(read.taken_at, Timestamp::from_secs(1_700_000_000));
        // Numbers of events go on from where the logs were.
        let span = |n| Span {
            first: n,
            latest: n,
        };
        let logs = BTreeMap::from([(None, span(91)), (Some(id("a")), span(13))]);
        assert_eq!(read.logs(), logs);
    }

    #[test]
    fn the_key_is_in_a_backup_only_when_asked_for_and_in_no_other_form() {
        let mirror = mirror(&key());
        let without = text(&mirror, None);
        let with = text(&mirror, Some(&key()));
        let encoded = STANDARD.encode([7; 32]);
        let holds = |text: &[u8]| String::from_utf8_lossy(text).contains(&encoded);
        assert!(!holds(&without) && holds(&with));
        assert!(Contents::read(&without).unwrap().key.is_none());
        let read = Contents::read(&with).unwrap();
        assert_eq!(read.key.as_ref().map(TokenKey::id), Some(key().id()));
        assert!(!format!("{read:?}").contains(&encoded));
    }

    #[test]
    fn every_line_of_a_backup_is_json_and_says_what_it_is() {
        let text = String::from_utf8(text(&mirror(&key()), Some(&key()))).unwrap();
        let kinds: Vec<String> = text
            .lines()
            .map(|line| {
                let value: serde_json::Value = serde_json::from_str(line).unwrap();
                value.as_object().unwrap().keys().next().unwrap().clone()
            })
            .collect();
        let expected = [
            "header",
            "session",
            "status",
            "run",
            "run",
            "session",
            "log",
            "log",
            "token_key",
            "footer",
        ];
        assert_eq!(kinds, expected);
    }

    /// Frames rows of its own under a header that counts them.
    fn framed(rows: &[Row], change: impl FnOnce(&mut Header)) -> Vec<u8> {
        let key = TokenKey::from_bytes(&[7; 32]).unwrap();
        let count = |is: fn(&Row) -> bool| count(rows.iter().filter(|row| is(row)).count());
        let counts = Counts {
            sessions: count(|row| matches!(row, Row::Session(_))),
            statuses: count(|row| matches!(row, Row::Status(_))),
            runs: count(|row| matches!(row, Row::Run(_))),
            logs: count(|row| matches!(row, Row::Log(_))),
            keys: count(|row| matches!(row, Row::TokenKey(_))),
        };
        let mut header = header_of(&mirror(&key).meta, Timestamp::ZERO, counts);
        change(&mut header);
        let (mut seal, mut bytes) = Seal::begin(header);
        for row in rows {
            bytes.extend(seal.line(row));
        }
        bytes.extend(seal.end());
        bytes
    }

    #[test]
    fn a_whole_backup_that_contradicts_itself_is_refused_by_its_line() {
        let session = Row::Session(Box::new(record("a", 1)));
        let status = Row::Status(Box::new(StatusRow {
            session: id("a"),
            status: Status::default(),
        }));
        let other_key = Row::TokenKey(STANDARD.encode([8; 32]));
        let log = Row::Log(LogRow {
            session: Some(id("b")),
            latest: 1,
        });
        for (rows, line) in [
            (vec![status.clone(), session.clone()], 2),
            (vec![session.clone(), session.clone()], 3),
            (vec![session.clone(), status.clone(), status.clone()], 4),
            (vec![session.clone(), log], 3),
            (vec![other_key], 2),
        ] {
            let error = Contents::read(&framed(&rows, |_| {})).unwrap_err();
            let said = format!("use line {line} of the backup");
            assert!(error.to_string().starts_with(&said), "{error}");
        }
        let miscounted = framed(&[session], |header| header.counts.sessions = 2);
        let error = Contents::read(&miscounted).unwrap_err();
        assert!(error.to_string().starts_with("use line 1 of"), "{error}");
    }

    #[test]
    fn a_backup_of_a_newer_schema_is_refused() {
        let newer = framed(&[], |header| header.schema = SCHEMA + 1);
        assert!(matches!(
            Contents::read(&newer),
            Err(BackupError::NewerSchema { found }) if found == SCHEMA + 1
        ));
    }
}
