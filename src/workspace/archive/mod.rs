//! Packs a workspace into an archive, and unpacks one.
