//! The runtimes that clients may name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Ceilings;
use crate::id::Alias;

/// The allowlist with its default; never empty, and the default is in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalogue {
    runtimes: BTreeMap<Alias, Runtime>,
    default: Alias,
}

/// One entry of the allowlist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Runtime {
    /// Where its image comes from.
    pub source: Source,
    /// What the operator says it is for; may be empty.
    pub description: String,
    /// Its own ceilings, over the service's.
    pub ceilings: Ceilings,
    /// Whether a background run that nobody follows keeps its session from idling.
    #[serde(default)]
    pub keep_awake: KeepAwake,
    /// Whether callers may choose the user of a command.
    #[serde(default)]
    pub users: Users,
}

/// Whether a background run that nobody follows keeps its session from idling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepAwake {
    /// It ends with its session.
    #[default]
    No,
    /// It is work in flight.
    Yes,
}

/// Whether callers may choose the user of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Users {
    /// Commands run as the sandbox's own user.
    #[default]
    Own,
    /// Commands may run as any user of the image, root among them.
    Any,
}

/// Where an image comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A ready image.
    Image(String),
    /// A runtime configuration: a ready image with settings, or a recipe.
    Config(Box<RuntimeConfig>),
}

/// The package manager of a recipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackageManager {
    /// Python packages.
    #[default]
    Pip,
    /// Node.js packages.
    Npm,
    /// Debian packages.
    Apt,
    /// Rust programs.
    Cargo,
}

/// A runtime configuration, field for field as operators write it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuntimeConfig {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// A ready image; wins over a base.
    #[serde(default)]
    pub image: Option<String>,
    /// The image that a build starts from.
    #[serde(default)]
    pub base_image: Option<String>,
    /// What the build installs.
    #[serde(default)]
    pub packages: Vec<String>,
    /// With what it installs them.
    #[serde(default)]
    pub package_manager: PackageManager,
    /// Commands that the build runs first.
    #[serde(default)]
    pub setup_commands: Vec<String>,
    /// Environment of every command.
    #[serde(default)]
    pub env_vars: BTreeMap<String, String>,
    /// Accepted and replaced by the service's work directory.
    #[serde(default = "workspace")]
    pub work_dir: String,
    /// Whether an image that exists is taken as it is.
    #[serde(default = "yes")]
    pub cache_image: bool,
    /// The user that the image prepares.
    #[serde(default)]
    pub run_as_uid: Option<u32>,
}

fn workspace() -> String {
    "/workspace".to_owned()
}

fn yes() -> bool {
    true
}

/// Says why a set of runtimes is not a catalogue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCatalogue {
    /// There is no runtime.
    #[error("the allowlist names no runtime")]
    Empty,
    /// The default is not one of the runtimes.
    #[error("default_runtime '{wanted}' is not in runtimes ({known})")]
    UnknownDefault {
        /// The alias asked for.
        wanted: String,
        /// The aliases there are.
        known: String,
    },
}

impl Catalogue {
    /// Checks that there is a runtime and that the default is one of them.
    pub fn new(
        runtimes: BTreeMap<Alias, Runtime>,
        default: Alias,
    ) -> Result<Self, InvalidCatalogue> {
        if runtimes.is_empty() {
            return Err(InvalidCatalogue::Empty);
        }
        let catalogue = Self { runtimes, default };
        if catalogue.get(&catalogue.default).is_none() {
            return Err(InvalidCatalogue::UnknownDefault {
                wanted: catalogue.default.to_string(),
                known: catalogue.aliases(),
            });
        }
        Ok(catalogue)
    }

    /// Returns the runtime of an alias, if it is allowed.
    pub fn get(&self, alias: &Alias) -> Option<&Runtime> {
        self.runtimes.get(alias)
    }

    /// Returns the alias taken when a client names none.
    pub fn default_alias(&self) -> &Alias {
        &self.default
    }

    /// Returns all runtimes, sorted by alias.
    pub fn iter(&self) -> impl Iterator<Item = (&Alias, &Runtime)> {
        self.runtimes.iter()
    }

    /// Returns the sorted aliases, joined with a comma and a space.
    pub fn aliases(&self) -> String {
        let names: Vec<&str> = self.runtimes.keys().map(Alias::as_str).collect();
        names.join(", ")
    }
}

impl Runtime {
    /// Says whether its image has to be built here before it can be used.
    pub fn needs_build(&self) -> bool {
        self.ready_image().is_none()
    }

    /// Returns the image that can be used as it is; a recipe has none.
    pub fn ready_image(&self) -> Option<&str> {
        match &self.source {
            Source::Image(image) => Some(image),
            Source::Config(config) => config.image.as_deref(),
        }
    }
}
