//! Lists every setting: the one table behind parsing, suggestions, `check` and the docs.

mod table;
mod work;

use std::sync::LazyLock;

use crate::policy::valid::CPUS_MIN;
use crate::quantity::Cpus;

/// The prefix of the daemon's variables.
pub const PREFIX: &str = "SANDBOXD_";

/// Every setting, in the order of the reference.
pub static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| [table::ROWS, work::ROWS].concat());

/// The longest span that can be asked for: a hundred years.
pub const SECS_MAX: u64 = 3_153_600_000;

/// One thing that an operator can set.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The variable, in the environment and in the configuration file.
    pub name: &'static str,
    /// The command line flag, without its dashes.
    pub flag: Option<&'static str>,
    /// The variable of another program that is taken where this one is absent.
    pub instead: Option<&'static str>,
    /// What the text may be.
    pub kind: Kind,
    /// What holds where nothing is set.
    pub default: Preset,
    /// Under which heading it is documented.
    pub group: Group,
    /// What it is: one sentence.
    pub doc: &'static str,
    /// When it matters and what it depends on.
    pub nuance: &'static str,
    /// A value that an operator might write.
    pub example: &'static str,
    /// The test that shows its effect, of those in `tests/it`: `file::name`.
    pub shown_by: &'static str,
}

/// What the text of a setting may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text but the empty one.
    Text,
    /// A text; the empty one means none.
    MaybeText,
    /// A text that is never shown.
    Secret,
    /// A path; made absolute.
    Path,
    /// A path, made absolute; the empty text means none.
    MaybePath,
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// A whole number in a range; the empty text means none.
    MaybeWhole(u64, u64),
    /// A whole number of seconds, from the given one.
    Secs(u64),
    /// Like seconds; the empty text means none.
    MaybeSecs(u64),
    /// A size such as `1g`; the empty text means none.
    MaybeSize,
    /// A number of processors; the empty text means none.
    MaybeCpus,
    /// Yes or no.
    Flag,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// The address of a unix socket.
    Socket,
    /// Directives for the log.
    Filter,
    /// The allowlist.
    Runtimes,
}

/// What holds where nothing is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// This text, parsed like one that an operator wrote.
    Is(&'static str),
    /// No value; the words say what follows from that.
    Nothing(&'static str),
    /// There is none: the daemon does not start without.
    Required,
}

/// The headings of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Where the daemon listens and who may call it.
    Access,
    /// Where it keeps what it knows.
    Places,
    /// What clients may run.
    Runtimes,
    /// How many sessions there may be.
    Capacity,
    /// What one sandbox may use.
    Ceilings,
    /// What a sandbox looks like inside.
    Interior,
    /// How long things live.
    Lifetimes,
    /// How commands are run.
    Commands,
    /// How much work the daemon takes on.
    Operation,
    /// What it says while it runs.
    Logs,
}

impl Group {
    /// All headings in the order of the reference.
    pub const ALL: [Self; 10] = [
        Self::Access,
        Self::Places,
        Self::Runtimes,
        Self::Capacity,
        Self::Ceilings,
        Self::Interior,
        Self::Lifetimes,
        Self::Commands,
        Self::Operation,
        Self::Logs,
    ];

    /// Returns the heading.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Access => "Access",
            Self::Places => "Places",
            Self::Runtimes => "Runtimes",
            Self::Capacity => "Capacity",
            Self::Ceilings => "Ceilings of a sandbox",
            Self::Interior => "Inside a sandbox",
            Self::Lifetimes => "Lifetimes",
            Self::Commands => "Commands",
            Self::Operation => "Operation",
            Self::Logs => "Logs",
        }
    }
}

impl Kind {
    /// Says what is accepted, as a noun that completes "write …".
    pub fn accepts(self) -> String {
        match self {
            Self::Text | Self::MaybeText => "a text".to_owned(),
            Self::Secret => "a long random text without spaces".to_owned(),
            Self::Path | Self::MaybePath => "a path".to_owned(),
            Self::Whole(min, max) | Self::MaybeWhole(min, max) => {
                format!("a whole number from {min} to {max}")
            }
            Self::Secs(min) | Self::MaybeSecs(min) => {
                format!("a whole number of seconds from {min} to {SECS_MAX}")
            }
            Self::MaybeSize => "a number and one of b, k, m, g, t".to_owned(),
            Self::MaybeCpus => format!("a number from {CPUS_MIN} to {}", Cpus::CPUS_MAX),
            Self::Flag => "one of 0, 1, false, no, off, on, true, yes".to_owned(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Socket => "the address of a unix socket".to_owned(),
            Self::Filter => "a level (error, warn, info, debug, trace) or directives".to_owned(),
            Self::Runtimes => "alias=source entries, or JSON".to_owned(),
        }
    }

    /// Says whether the empty text means that there is no value.
    pub const fn may_be_empty(self) -> bool {
        match self {
            Self::MaybeText
            | Self::MaybePath
            | Self::MaybeWhole(..)
            | Self::MaybeSecs(_)
            | Self::MaybeSize
            | Self::MaybeCpus => true,
            Self::Text
            | Self::Secret
            | Self::Path
            | Self::Whole(..)
            | Self::Secs(_)
            | Self::Flag
            | Self::Choice(_)
            | Self::Socket
            | Self::Filter
            | Self::Runtimes => false,
        }
    }
}

/// Names that belong to the command line client, to the sandboxes, or to settings
/// of the service before this one that have nothing to do here.
const QUIET: [&str; 4] = [
    "SANDBOXD_URL",
    "SANDBOXD_CONTEXT",
    "SANDBOXD_RUN",
    "SANDBOXD_NATIVE_FILES",
];

/// How much alike two names have to be for one to be suggested for the other.
const ALIKE_MIN: f64 = 0.6;

/// Returns the setting of a variable.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// Says whether a name is known without being a setting of the daemon.
pub fn is_quiet(name: &str) -> bool {
    QUIET.contains(&name) || SETTINGS.iter().any(|setting| setting.instead == Some(name))
}

/// Returns the setting whose name is most like an unknown one, if any is.
pub fn nearest(name: &str) -> Option<&'static str> {
    let alike = strsim::normalized_damerau_levenshtein;
    let likeness = |setting: &Setting| {
        let known = setting.name.strip_prefix(PREFIX).unwrap_or(setting.name);
        // The prefix that all share would make everything look alike.
        match name.strip_prefix(PREFIX) {
            Some(tail) => alike(tail, known),
            None => alike(name, known).max(alike(name, setting.name)),
        }
    };
    SETTINGS
        .iter()
        .map(|setting| (likeness(setting), setting.name))
        .filter(|(likeness, _)| ALIKE_MIN <= *likeness)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_setting_is_listed_once_in_the_order_of_the_groups() {
        let names: BTreeSet<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        assert_eq!(names.len(), SETTINGS.len());
        assert!(
            SETTINGS
                .iter()
                .all(|setting| setting.name.starts_with(PREFIX))
        );
        assert!(SETTINGS.is_sorted_by_key(|setting| setting.group));
        assert!(Group::ALL.is_sorted());
    }

    #[test]
    fn every_setting_says_what_it_is_when_it_matters_and_shows_an_example() {
        for setting in SETTINGS.iter() {
            for text in [setting.doc, setting.nuance] {
                assert!(text.ends_with('.'), "{}: {text}", setting.name);
            }
            assert!(!setting.example.is_empty(), "{}", setting.name);
        }
    }

    #[test]
    fn a_slip_of_the_pen_finds_its_setting() {
        assert_eq!(
            nearest("SANDBOXD_MAX_SESSION"),
            Some("SANDBOXD_MAX_SESSIONS")
        );
        assert_eq!(
            nearest("SANDBOXD_WORKSPACEROOT"),
            Some("SANDBOXD_WORKSPACE_ROOT")
        );
        assert_eq!(nearest("SANDBOXD_TOEKN"), Some("SANDBOXD_TOKEN"));
        assert_eq!(nearest("SANDBOXD_SOMETHING_ELSE_ALTOGETHER"), None);
    }

    #[test]
    fn names_of_neighbours_are_known_without_being_settings() {
        for name in ["SANDBOXD_URL", "SANDBOXD_NATIVE_FILES", "DOCKER_HOST"] {
            assert!(is_quiet(name) && find(name).is_none(), "{name}");
        }
    }
}
