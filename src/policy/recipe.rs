//! Checks a runtime configuration before anything is built from it.

use super::RuntimeConfig;
use super::valid::is_image;

/// Bytes of the longest name: it becomes part of an image tag.
pub const NAME_BYTES_MAX: usize = 100;
/// The most entries of each list.
pub const ENTRIES_MAX: usize = 256;

/// Says why a runtime configuration cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecipe {
    /// The name cannot be part of a tag.
    #[error("name {0:?} is not 1 to 100 letters, digits, '.', '_' or '-', a letter or digit first")]
    Name(String),
    /// It has no image at all.
    #[error("it names neither image nor base_image")]
    NoImage,
    /// An image is not a reference.
    #[error("{0:?} is not an image reference")]
    Image(String),
    /// A package would be read as an option or as shell syntax.
    #[error("package {0:?} is not a plain package name")]
    Package(String),
    /// A setup command spans lines.
    #[error("setup command {0:?} is empty or spans several lines; join them with &&")]
    Setup(String),
    /// The name of a variable is not one; its value is left out on purpose.
    #[error("env_vars names {0:?}, which is not a variable name")]
    VariableName(String),
    /// The value of a variable spans lines; left out on purpose.
    #[error("the value of {0} in env_vars spans several lines")]
    VariableValue(String),
    /// A list is too long.
    #[error("{0} has more than 256 entries")]
    TooMany(&'static str),
    /// Root cannot be the prepared user.
    #[error("run_as_uid 0 is root, which needs no preparation; leave it out")]
    Root,
}

/// Finds the first thing that keeps a configuration from being built.
pub fn check(config: &RuntimeConfig) -> Result<(), InvalidRecipe> {
    if !is_tag_part(&config.name) {
        return Err(InvalidRecipe::Name(config.name.clone()));
    }
    if config.run_as_uid == Some(0) {
        return Err(InvalidRecipe::Root);
    }
    check_images(config)?;
    for (list, entries) in [
        ("packages", config.packages.len()),
        ("setup_commands", config.setup_commands.len()),
        ("env_vars", config.env_vars.len()),
    ] {
        if ENTRIES_MAX < entries {
            return Err(InvalidRecipe::TooMany(list));
        }
    }
    if let Some(name) = config.packages.iter().find(|name| !is_package(name)) {
        return Err(InvalidRecipe::Package(name.clone()));
    }
    let broken = |command: &&String| command.trim().is_empty() || !is_one_line(command);
    if let Some(command) = config.setup_commands.iter().find(broken) {
        return Err(InvalidRecipe::Setup(command.clone()));
    }
    if let Some(name) = config.env_vars.keys().find(|name| !is_variable(name)) {
        return Err(InvalidRecipe::VariableName(name.clone()));
    }
    match config.env_vars.iter().find(|(_, text)| !is_one_line(text)) {
        Some((name, _)) => Err(InvalidRecipe::VariableValue(name.clone())),
        None => Ok(()),
    }
}

fn check_images(config: &RuntimeConfig) -> Result<(), InvalidRecipe> {
    let mut images = config.image.iter().chain(&config.base_image).peekable();
    if images.peek().is_none() {
        return Err(InvalidRecipe::NoImage);
    }
    match images.find(|image| !is_image(image)) {
        Some(image) => Err(InvalidRecipe::Image(image.clone())),
        None => Ok(()),
    }
}

fn is_one_line(text: &str) -> bool {
    !text.contains(['\n', '\r', '\0'])
}

fn is_tag_part(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn is_package(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '@')
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"@._/+=<>~![]-".contains(&b))
}

fn is_variable(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::super::builtins;
    use super::*;

    type Edit = fn(&mut RuntimeConfig);

    #[test]
    fn what_would_reach_a_shell_or_a_tag_is_refused_by_name() {
        let rows: [(Edit, &str); 10] = [
            (|c| c.name = "a b".to_owned(), "name \"a b\""),
            (|c| c.base_image = None, "neither image nor base_image"),
            (|c| c.base_image = Some("a b".to_owned()), "image reference"),
            (|c| c.packages = vec!["--index-url".to_owned()], "package"),
            (|c| c.packages = vec!["a;reboot".to_owned()], "package"),
            (|c| c.packages = vec!["a".to_owned(); 257], "more than 256"),
            (
                |c| c.setup_commands = vec!["a\nb".to_owned()],
                "several lines",
            ),
            (
                |c| drop(c.env_vars.insert("1A".to_owned(), "x".to_owned())),
                "\"1A\"",
            ),
            (
                |c| drop(c.env_vars.insert("KEY".to_owned(), "hunter2\n".to_owned())),
                "KEY",
            ),
            (|c| c.run_as_uid = Some(0), "root"),
        ];
        for (edit, said) in rows {
            let mut config = builtins::get("coding").unwrap();
            edit(&mut config);
            let error = check(&config).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
            assert!(!error.contains("hunter2"), "a value is never shown");
        }
    }

    #[test]
    fn version_pins_extras_and_scopes_are_packages_and_lists_of_them_are_not() {
        for name in [
            "numpy==2.1",
            "uvicorn[standard]",
            "a>=1.0",
            "@types/react",
            "npm@10",
            "g++",
        ] {
            assert!(is_package(name), "{name}");
        }
        for name in ["", "a b", "a>=1.0,<2", "-e", "./local", "$(id)"] {
            assert!(!is_package(name), "{name}");
        }
    }
}
