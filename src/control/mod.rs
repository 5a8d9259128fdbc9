//! What a caller may ask, without HTTP.

pub mod refusal;
pub mod request;
mod stub;

pub use refusal::Refusal;
pub use stub::Control;
