//! The workspaces that there are.

use serde::{Deserialize, Serialize};

/// A workspace, whether its session is open or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceInfo {
    /// Its id.
    pub session_id: String,
    /// Whether a session of the id is open, running or asleep.
    pub open: bool,
    /// Bytes on the disk, as last measured; `null` where it was not measured yet.
    pub bytes: Option<u64>,
    /// Regular files, as last measured.
    pub files: Option<u64>,
    /// When it was last measured, in seconds since the epoch.
    pub measured_at: Option<f64>,
    /// The most bytes that may lie in it; `null` for no bound.
    pub limit: Option<u64>,
    /// When its session was last used, in seconds since the epoch, where that is known.
    pub last_used: Option<f64>,
    /// The alias it was last opened on, where that is known.
    pub runtime: Option<String>,
    /// Its tenant.
    pub tenant: Option<String>,
}

/// The answer of `GET /workspaces`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceList {
    /// In the order of their ids.
    pub workspaces: Vec<WorkspaceInfo>,
    /// The cursor of the next page; `null` at the end.
    pub next: Option<String>,
}

/// The answer of `PUT /workspaces/{session_id}/import`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImportResponse {
    /// The id that has the files now.
    pub session_id: String,
    /// Regular files of the archive.
    pub files: u64,
    /// Directories that the archive names.
    pub directories: u64,
    /// Links.
    pub links: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Devices, FIFOs and sockets, which are left out: the first of them.
    pub skipped: Vec<super::files::SkippedPath>,
    /// How many were left out in all.
    pub n_skipped: u64,
}
