//! Reads backups of the store.

use super::calls::{Client, Query};
use super::error::Error;
use super::pieces::ReplyPieces;

/// Whether a backup holds the key that all session tokens are derived from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackupKey {
    /// It is left out.
    #[default]
    Leave,
    /// It is in it: whoever reads the backup can make every token.
    Take,
}

impl Client {
    /// Begins to read a backup of the store, as JSON lines; needs the service token.
    ///
    /// `wire::backup::open` tells whether what came is whole.
    pub async fn backup(&self, key: BackupKey) -> Result<ReplyPieces, Error> {
        let mut query = Query::default();
        match key {
            BackupKey::Leave => {}
            BackupKey::Take => query.add("key", Some("true")),
        }
        self.pieces(&self.get(query.after("/backup"))).await
    }
}
