//! Explains sessions, puts them to sleep and wakes them.

use std::time::Duration;

use super::calls::{Call, Client, HELD_REPLY_GRACE, Query, Sends};
use super::error::Error;
use crate::id::SessionId;
use crate::wire::explain::SessionExplanation;
use crate::wire::sessions::SessionInfo;
use crate::wire::sweep::SweepReport;

/// Whether a sweep is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepOptions {
    /// It is.
    Act,
    /// It is asked what is due within this time, or until the next sweep.
    Look(Option<Duration>),
}

impl Client {
    /// Asks what a session should be, what it is, what comes next, and why; wakes nothing.
    pub async fn explain(&self, id: &SessionId) -> Result<SessionExplanation, Error> {
        self.json(self.get(format!("/sessions/{id}/explain"))).await
    }

    /// Puts a session to sleep that nothing uses, and waits until its sandbox has stopped;
    /// needs the service token.
    ///
    /// One in use is a conflict, `session_in_use`, and one whose container holds the only
    /// copy of its files is `sleep_loses_files`.
    pub async fn hibernate(&self, id: &SessionId) -> Result<SessionInfo, Error> {
        self.bring(format!("/sessions/{id}/hibernate")).await
    }

    /// Wakes a session, and waits until its sandbox runs; needs the service token.
    pub async fn wake(&self, id: &SessionId) -> Result<SessionInfo, Error> {
        self.bring(format!("/sessions/{id}/wake")).await
    }

    /// Has everything gone through now, or asks what the next sweep takes; needs the service
    /// token.
    pub async fn sweep(&self, sweep: SweepOptions) -> Result<SweepReport, Error> {
        let mut query = Query::default();
        match sweep {
            SweepOptions::Act => {}
            SweepOptions::Look(within) => {
                query.add("dry_run", Some("true"));
                query.add("within", within.map(|within| within.as_secs()));
            }
        }
        let call = self.get(query.after("/sweep"));
        self.json(Call {
            method: hyper::Method::POST,
            sends: Sends::Nothing,
            ..call
        })
        .await
    }

    async fn bring(&self, path: String) -> Result<SessionInfo, Error> {
        let call = self.get(path);
        self.json(Call {
            method: hyper::Method::POST,
            sends: Sends::Nothing,
            deadline: call.deadline.saturating_add(HELD_REPLY_GRACE),
            ..call
        })
        .await
    }
}
