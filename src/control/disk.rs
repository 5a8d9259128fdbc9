//! Keeps workspaces below their ceiling, as far as the service itself writes to them.
//!
//! What sandboxes write is found by measuring, which the controller does. Nothing is
//! refused on an old figure: before that the workspace is measured anew.

use std::time::Duration;

use super::refusal::Attempt;
use super::{Control, Refusal};
use crate::id::SessionId;
use crate::policy::Runtime;
use crate::quantity::ByteSize;
use crate::session::disk::{Over, over};
use crate::session::record::Record;

/// How long a caller waits for its workspace to be measured. What could not be measured by
/// then goes on: the round of measuring finds it.
const MEASURE_WAIT_MAX: Duration = Duration::from_secs(10);
/// The disk gives room in blocks of this size.
const BLOCK_BYTES: u64 = 4_096;

impl Control {
    /// Returns the ceiling of workspaces on a runtime, in bytes on the disk.
    pub(super) fn workspace_limit(&self, runtime: Option<&Runtime>) -> Option<u64> {
        let policy = self.0.policy.get();
        let size = match runtime {
            Some(runtime) => policy.ceilings_of(runtime).workspace_size,
            None => policy.ceilings.workspace_size.clone(),
        };
        size.as_ref().map(ByteSize::bytes)
    }

    /// Refuses to write so many bytes, where more would lie in the workspace than may, and
    /// counts them otherwise.
    pub(in crate::control) async fn has_room_for(
        &self,
        id: &SessionId,
        bytes: u64,
    ) -> Result<(), Refusal> {
        self.would_fit(id, bytes).await?;
        self.has_grown(id, bytes);
        Ok(())
    }

    /// Counts bytes that were written to a workspace.
    pub(in crate::control) fn has_grown(&self, id: &SessionId, bytes: u64) {
        self.0.disks.note_written(id, in_blocks(bytes));
    }

    /// Refuses so many bytes, where more would lie in the workspace than may.
    pub(in crate::control) async fn would_fit(
        &self,
        id: &SessionId,
        bytes: u64,
    ) -> Result<(), Refusal> {
        let Some(record) = self.open_record(id) else {
            return Ok(());
        };
        let limit = self.workspace_limit(Some(&record.spec.runtime));
        if limit.is_none() || self.0.host.workspaces.is_none() {
            return Ok(());
        }
        let bytes = in_blocks(bytes);
        let disks = &self.0.disks;
        let is_over = match disks.estimate(id) {
            Some(used) => over(limit, used, bytes).is_some(),
            None => true,
        };
        if is_over && let Some(figure) = disks.measured(id, MEASURE_WAIT_MAX).await {
            refuse(id, over(limit, figure.bytes, bytes), Attempt::Write)?;
        }
        Ok(())
    }

    /// Refuses to wake a session, where more lies in its workspace than may.
    pub(super) async fn may_wake(&self, record: &Record) -> Result<(), Refusal> {
        let id = &record.spec.id;
        let limit = self.workspace_limit(Some(&record.spec.runtime));
        if limit.is_none() || self.0.host.workspaces.is_none() {
            return Ok(());
        }
        let disks = &self.0.disks;
        let is_over = match disks.estimate(id) {
            Some(used) => over(limit, used, 0).is_some(),
            None => true,
        };
        if is_over && let Some(figure) = disks.measured(id, MEASURE_WAIT_MAX).await {
            refuse(id, over(limit, figure.bytes, 0), Attempt::Wake)?;
        }
        Ok(())
    }
}

/// What so many bytes take: a file has a block at least, and a directory does.
fn in_blocks(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(BLOCK_BYTES)
}

/// Refuses where a workspace is over its ceiling.
pub(super) fn refuse(id: &SessionId, over: Option<Over>, attempt: Attempt) -> Result<(), Refusal> {
    match over {
        None => Ok(()),
        Some(Over { limit, used }) => Err(Refusal::WorkspaceFull {
            id: id.clone(),
            limit,
            used,
            attempt,
        }),
    }
}
