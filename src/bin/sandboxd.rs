//! The daemon's entry point.
#![forbid(unsafe_code)]
fn main() {}
