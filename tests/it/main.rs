//! Integration tests.
#![forbid(unsafe_code)]
