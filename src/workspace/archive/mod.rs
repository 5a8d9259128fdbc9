//! Packs a workspace into an archive, and unpacks one into an empty directory.
//!
//! An archive is tar in GNU's format, plain or as zstd. What is packed is read beneath
//! descriptors, like every search; what is unpacked is taken for hostile: names, links
//! and sizes are checked, and everything is made beneath the one directory.
//!
//! Compression is `ruzstd`'s: it is written in safe Rust, which decoding what strangers
//! send calls for, and no C compiler is needed to build the service.

mod export;
mod header;
mod import;
mod members;
mod refusal;
#[cfg(test)]
mod tests;
mod zst;

pub use export::{Export, ExportBounds, ExportError, Exported};
pub use import::{ImportBounds, Imported, import};
pub use refusal::{Hazard, ImportError, Limit};

/// How an archive is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Plain tar.
    Tar,
    /// Tar compressed by zstd.
    TarZst,
}
