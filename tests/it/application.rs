//! The documented application, end to end, and the guide to it.

use std::path::Path;
use std::process::Command;

use crate::support::docker::need_image;

/// Runs a script of the example with the programs of this build; panics with what it says.
fn run(script: &str) {
    need_image();
    let programs = Path::new(env!("CARGO_BIN_EXE_sandboxd")).parent().unwrap();
    let mut command = Command::new("bash");
    command
        .args(["-c", "exec \"$0\" 2>&1", script])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("SANDBOXD_PROGRAMS", programs);
    // Built with the tests where all of them are; the script builds it where it is missing.
    let example = programs.join("examples/application");
    if example.exists() {
        command.env("EXAMPLE_PROGRAM", example);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{script}: {}\n{said}",
        output.status
    );
}

#[test]
fn the_application_does_what_its_guide_says_from_end_to_end() {
    run("examples/remote-sandbox/check.sh");
}

#[test]
fn every_shell_and_python_block_of_the_application_s_guide_runs() {
    run("examples/remote-sandbox/guide.sh");
}
