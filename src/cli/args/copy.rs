//! Defines the verb that copies files.

use std::path::PathBuf;

use crate::id::SessionId;

pub(super) const AFTER_HELP: &str = "\
Examples:

  # Out of a session and into one; a directory takes the name of the file.
  sandboxctl cp s1:out/report.pdf .
  sandboxctl cp data.csv s1:/workspace/in/data.csv

  # From one program to another.
  tar c src | sandboxctl cp - s1:src.tar
  sandboxctl cp s1:log - | less

A path in a session is relative to its work directory, or absolute. What is before the \
first colon is a session if it could be an id: write ./a:b for a file of that name. \
Only single files are copied. A copy that breaks off leaves what was there before.";

/// The arguments of `cp`.
#[derive(Clone, Debug, clap::Args)]
pub struct Copy {
    /// The file: ID:PATH in a session, a local one, or - for standard input
    #[arg(value_name = "SOURCE", value_parser = place)]
    pub source: Place,

    /// Where it goes: ID:PATH in a session, a local file or directory, or - for
    /// standard output
    #[arg(value_name = "TARGET", value_parser = place)]
    pub target: Place,
}

/// Where a file is, or is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a session.
    Session {
        /// The session.
        id: SessionId,
        /// The path there.
        path: String,
    },
    /// On this host.
    Local(PathBuf),
    /// On standard input or output.
    Standard,
}

fn place(text: &str) -> Result<Place, String> {
    if text == "-" {
        return Ok(Place::Standard);
    }
    if let Some((id, path)) = text.split_once(':')
        && let Ok(id) = SessionId::parse(id)
    {
        return if path.is_empty() {
            Err(format!("write {id}:PATH"))
        } else {
            let path = path.to_owned();
            Ok(Place::Session { id, path })
        };
    }
    if text.is_empty() {
        return Err("write a path".to_owned());
    }
    Ok(Place::Local(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_before_a_colon_is_a_session_if_it_could_be_one() {
        let session = |id, path: &str| Place::Session {
            id: SessionId::parse(id).unwrap(),
            path: path.to_owned(),
        };
        for (text, expected) in [
            ("s1:a/b", session("s1", "a/b")),
            ("s1:/tmp/x:y", session("s1", "/tmp/x:y")),
            ("-", Place::Standard),
            ("./s1:a", Place::Local("./s1:a".into())),
            ("/a:b", Place::Local("/a:b".into())),
            ("a b:c", Place::Local("a b:c".into())),
            (".", Place::Local(".".into())),
        ] {
            assert_eq!(place(text), Ok(expected), "{text}");
        }
        assert!(place("").is_err() && place("s1:").is_err());
    }
}
