//! The definition of the command line.

use clap::Parser as _;

use crate::cli::args::{self, Args};

const RUN: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn the_command_line_is_well_defined() {
    args::command().debug_assert();
}

#[test]
fn wrong_usage_is_2_and_help_is_0() {
    for (arguments, exit) in [
        (&["ls", "--what"][..], 2),
        (&[], 2),
        (&["get", "../etc"], 2),
        (&["exec", "a"], 2),
        (&["exec", "a", "-e", "=x", "--", "true"], 2),
        (&["exec", "a", "-e", "NAME", "--", "true"], 2),
        (&["run", "a", "true"], 2),
        (&["logs", "a", "not-a-run"], 2),
        (&["kill", "a"], 2),
        (&["shell"], 2),
        (&["shell", "a", "sh"], 2),
        (&["shell", "a", "--attach", "no"], 2),
        (&["shell", "a", "--attach", RUN, "--", "sh"], 2),
        (&["shell", "a", "--attach", RUN, "-e", "A=b"], 2),
        (&["runs", "a", "--rm", "no"], 2),
        (&["run", "--help"], 0),
        (&["open", "--reuse"], 2),
        (&["open", "--id", "a", "--reuse", "--attach"], 2),
        (&["events", "a", "--limit", "0"], 2),
        (&["ls", "--timeout", "0"], 2),
        (&["--help"], 0),
        (&["purge", "--help"], 0),
        (&["--version"], 0),
    ] {
        let all = ["sandboxctl"].iter().chain(arguments);
        assert_eq!(
            Args::try_parse_from(all).unwrap_err().exit_code(),
            exit,
            "{arguments:?}"
        );
    }
}
