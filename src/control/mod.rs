//! What a caller may ask, without HTTP.

pub mod refusal;
pub mod request;

pub use refusal::Refusal;
