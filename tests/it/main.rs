//! Integration tests.
#![forbid(unsafe_code)]

mod engine;
