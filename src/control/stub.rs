//! Stands in for the service: it has no engine and no sessions.

use std::sync::Arc;

use crate::control::Refusal;
use crate::control::request::{Events, Exec, List, Open, Sampling, Viewer, WhenOpen};
use crate::id::SessionId;
use crate::secret::Secret;
use crate::session::record::Purge;
use crate::wire;

/// Answers what callers ask.
#[derive(Clone, Debug)]
pub struct Control(Arc<Secret>);

#[expect(clippy::unused_async, reason = "the real one waits")]
impl Control {
    /// Makes a service without sessions.
    pub fn stub(token: Secret) -> Self {
        Self(Arc::new(token))
    }

    /// Tells how the service is.
    pub fn health(&self) -> wire::service::ServiceHealth {
        wire::service::ServiceHealth {
            status: "ok".to_owned(),
            sessions: 0,
            limit: Some(20),
            open_sessions: 0,
            open_limit: None,
            runtimes: vec!["node".to_owned(), "python".to_owned()],
            reasons: Vec::new(),
        }
    }

    /// Tells the policy.
    pub fn policy(&self) -> wire::service::ServicePolicy {
        wire::service::ServicePolicy {
            runtimes: Vec::new(),
            default_runtime: "python".to_owned(),
            max_sessions: Some(20),
            max_open_sessions: None,
            max_sessions_per_tenant: None,
            evict_idle_after: None,
            mem_limit: None,
            memswap_limit: None,
            cpus: None,
            cpu_shares: None,
            pids_limit: None,
            network_mode: None,
            oci_runtime: None,
            work_dir: "/workspace".to_owned(),
            idle_timeout: 1800,
            execute_timeout: 300,
            max_read_bytes: 8 << 20,
            persist_containers: false,
            sandbox_uid: None,
            workspace_ttl: None,
            container_ttl: None,
            tmpfs_size: None,
            prewarm: true,
            buildkit: false,
            native_files: false,
            native_writes: false,
            native_realpath: false,
        }
    }

    /// Tells who a token makes the caller.
    pub fn authenticate(&self, _id: &SessionId, presented: &[u8]) -> Option<Viewer> {
        self.is_service_token(presented).then_some(Viewer::Service)
    }

    /// Tells whether a token is the service's.
    pub fn is_service_token(&self, presented: &[u8]) -> bool {
        self.0.matches(presented)
    }

    /// Opens.
    pub async fn open(&self, _open: Open) -> Result<wire::sessions::SessionCreated, Refusal> {
        Err(Refusal::EngineUnavailable("there is none".to_owned()))
    }

    /// Lists.
    pub async fn list(&self, _list: List) -> Result<wire::sessions::SessionList, Refusal> {
        Ok(wire::sessions::SessionList {
            sessions: Vec::new(),
            limit: Some(20),
            open_limit: None,
            tenant_limit: None,
            next: None,
        })
    }

    /// Describes.
    pub async fn describe(
        &self,
        id: &SessionId,
        _usage: Sampling,
        _viewer: Viewer,
    ) -> Result<wire::sessions::SessionInfo, Refusal> {
        Err(Refusal::NoSession(id.clone()))
    }

    /// Tells events.
    pub async fn events(
        &self,
        id: &SessionId,
        _events: Events,
    ) -> Result<wire::events::SessionEvents, Refusal> {
        Err(Refusal::NoSession(id.clone()))
    }

    /// Closes.
    pub async fn close(&self, id: &SessionId, _purge: Purge) -> Result<(), Refusal> {
        Err(Refusal::NoSession(id.clone()))
    }

    /// Purges.
    pub async fn purge(&self, _id: &SessionId, _open: WhenOpen) -> Result<(), Refusal> {
        Ok(())
    }

    /// Runs.
    pub async fn exec(
        &self,
        id: &SessionId,
        _exec: Exec,
    ) -> Result<wire::exec::ExecResponse, Refusal> {
        Err(Refusal::NoSession(id.clone()))
    }
}
