//! Says what has to be at a path before it is written to.

use super::beneath::Meta;
use super::refused::FileError;

/// What has to be at a path before it is written to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// A file or nothing.
    #[default]
    Anything,
    /// Nothing (`If-None-Match: *`).
    Nothing,
    /// A file (`If-Match: *`).
    Something,
    /// A file with one of these tags, as of [`Meta::etag`] (`If-Match`).
    OneOf(Vec<String>),
    /// Nothing, or a file with none of these tags (`If-None-Match`).
    NoneOf(Vec<String>),
}

impl Expected {
    /// Checks what is there.
    pub fn check(&self, there: Option<&Meta>) -> Result<(), FileError> {
        let has = |tags: &[String]| {
            let etag = there.map(Meta::etag);
            etag.is_some_and(|etag| tags.contains(&etag))
        };
        let is_met = match self {
            Self::Anything => true,
            Self::Nothing => there.is_none(),
            Self::Something => there.is_some(),
            Self::OneOf(tags) => has(tags),
            Self::NoneOf(tags) => !has(tags),
        };
        is_met.then_some(()).ok_or(FileError::Changed)
    }
}
