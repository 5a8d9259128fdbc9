//! What the tests stand on.

pub(crate) mod api;
pub(crate) mod case;
pub(crate) mod claims;
pub(crate) mod daemon;
pub(crate) mod docker;
pub(crate) mod http;
pub(crate) mod matcher;
pub(crate) mod notify;
pub(crate) mod proxy;
pub(crate) mod scripted;
pub(crate) mod source;
