//! Holds the committed man pages and completions to the definitions of the command lines.
//!
//! `UPDATE_ARTIFACTS=1 cargo test --test it artifacts` writes them anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// The directories that hold nothing else than what is made here.
const DIRECTORIES: [&str; 2] = ["man", "completions"];

/// A program with man pages and completions.
struct Program {
    command: Command,
    section: &'static str,
}

fn programs() -> Vec<Program> {
    vec![
        Program {
            command: sandboxd::cli::args::command(),
            section: "1",
        },
        Program {
            command: sandboxd::config::args::command(),
            section: "8",
        },
    ]
}

#[test]
fn man_pages_and_completions_are_those_of_the_command_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = artifacts();
    if std::env::var_os("UPDATE_ARTIFACTS").is_some() {
        write(root, &made);
    }
    let committed = read(root);
    let names = |files: &BTreeMap<PathBuf, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        names(&committed),
        names(&made),
        "files are missing or left over: run UPDATE_ARTIFACTS=1 cargo test --test it artifacts"
    );
    for (path, text) in &made {
        assert!(
            committed.get(path) == Some(text),
            "{} is stale: run UPDATE_ARTIFACTS=1 cargo test --test it artifacts",
            path.display()
        );
    }
}

#[test]
fn no_help_shows_what_is_in_the_environment() {
    for Program { mut command, .. } in programs() {
        command.build();
        let mut commands = vec![&command];
        while let Some(command) = commands.pop() {
            for argument in command.get_arguments() {
                assert!(
                    argument.get_env().is_none() || argument.is_hide_env_values_set(),
                    "{} of {} shows its variable's value",
                    argument.get_id(),
                    command.get_name()
                );
            }
            commands.extend(command.get_subcommands());
        }
    }
}

/// Makes every file, by its path below the root of the project.
fn artifacts() -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for Program { command, section } in programs() {
        let mut command = plain(command);
        let name = command.get_name().to_owned();
        for (shell, ending) in [
            (Shell::Bash, "bash"),
            (Shell::Zsh, "zsh"),
            (Shell::Fish, "fish"),
        ] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command.clone(), &name, &mut text);
            files.insert(format!("completions/{name}.{ending}").into(), utf8(text));
        }
        // Fills in the names of verbs, and the options that they inherit.
        command.build();
        add_pages(&mut files, &command, section);
    }
    files
}

/// Takes a version that a build may have put together down to the released one.
fn plain(command: Command) -> Command {
    command
        .version(env!("CARGO_PKG_VERSION"))
        .long_version(None::<&str>)
}

fn add_pages(files: &mut BTreeMap<PathBuf, String>, command: &Command, section: &str) {
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let page = Man::new(command.clone())
        .title(name.to_uppercase())
        .section(section)
        .source(format!("sandboxd {}", env!("CARGO_PKG_VERSION")))
        .manual("sandboxd");
    let mut text = Vec::new();
    page.render(&mut text).unwrap();
    // The heading under which readers of man pages look for the rest.
    let text = utf8(text).replace("\n.SH EXTRA\n", "\n.SH NOTES\n");
    files.insert(format!("man/{name}.{section}").into(), text);
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        add_pages(files, verb, section);
    }
}

fn utf8(text: Vec<u8>) -> String {
    String::from_utf8(text).unwrap()
}

fn read(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for directory in DIRECTORIES {
        for entry in std::fs::read_dir(root.join(directory)).unwrap() {
            let name = entry.unwrap().file_name();
            let path = Path::new(directory).join(name);
            let text = std::fs::read_to_string(root.join(&path)).unwrap();
            files.insert(path, text);
        }
    }
    files
}

fn write(root: &Path, made: &BTreeMap<PathBuf, String>) {
    for directory in DIRECTORIES {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    for left_over in read(root).keys().filter(|path| !made.contains_key(*path)) {
        std::fs::remove_file(root.join(left_over)).unwrap();
    }
    for (path, text) in made {
        std::fs::write(root.join(path), text).unwrap();
    }
}
