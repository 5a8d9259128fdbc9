//! Sessions as values, and the pure decisions about them.

pub mod admission;
pub mod blueprint;
pub mod disk;
pub mod fact;
pub mod hold;
pub mod lifecycle;
pub mod outlook;
pub mod phase;
pub mod rebuild;
pub mod record;
pub mod sweep;
#[cfg(test)]
pub(crate) mod testing;

pub use admission::{Admission, Ask, Census, Denied, Seat, Victim, admit};
pub use fact::Fact;
pub use hold::{Hold, Sweeps};
pub use lifecycle::{Activity, Aim, Keep, aim};
pub use record::{Marks, Record, Spec, Status};
