//! Runs the whole daemon but for its HTTP, thousands of times, in a world of mishaps that
//! a seed decides, and checks after each step that nothing was lost.
//!
//! ```text
//! world (a step: callers, mishaps, time) ──► control ─► store ─► disk (recording)
//!    │                                          │                  │
//!    │                                       reconcile ─► engine (played within)
//!    └── ledger: what was promised ◄── sees every commit, every call and every answer
//! ```
//!
//! Controller, admission, store and engine client are the program's own. Time is the
//! runtime's, which stands still while something is to be done and jumps to the next
//! deadline otherwise; there is one thread; and whoever waits is woken in the order in which
//! it came. So a seed always takes the same course.
//!
//! `SANDBOXD_SIM_SEED` replays one seed and shows all its steps, `SANDBOXD_SIM_SEEDS` says
//! how many are run, and `SANDBOXD_SIM_FROM` where they begin.

mod callers;
mod dice;
mod engine;
mod ledger;
mod ledger_tests;
mod life;
mod rest;
mod scene;
mod tape;
mod tests;
mod world;
