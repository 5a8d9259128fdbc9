//! The operator command's entry point.
#![forbid(unsafe_code)]
fn main() {}
