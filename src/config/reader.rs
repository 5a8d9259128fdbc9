//! Looks settings up in their layers, parses them and keeps what was found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::problem::Place;
use super::settings::{self, Kind, Preset, SECS_MAX, Setting};
use super::{Args, Origin, Problem, Provenance, Surroundings, file, syntax};
use crate::quantity::{ByteSize, Cpus};

/// What stands in for a secret.
const SET: &str = "(set)";

/// The layers, highest first: command line, environment, file, neighbours' variables.
pub(super) struct Layers<'a> {
    pub(super) args: &'a Args,
    pub(super) around: &'a Surroundings<'a>,
    pub(super) file: Option<ConfigFile>,
}

/// The configuration file as read.
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) entries: Vec<file::Entry>,
}

/// A text that somebody wrote for a setting.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) text: String,
    pub(super) origin: Origin,
}

impl Layers<'_> {
    /// Returns what holds for a setting, unless nobody set it.
    pub(super) fn find(&self, setting: &Setting) -> Option<Found> {
        let by_flag = setting.flag.and_then(|flag| {
            let text = self.args.value(flag)?.to_owned();
            Some((text, Origin::CommandLine(flag)))
        });
        let (text, origin) = by_flag
            .or_else(|| Some((self.var(setting.name)?.clone(), Origin::Environment)))
            .or_else(|| self.in_file(setting.name))
            .or_else(|| self.by_neighbour(setting))?;
        Some(Found { text, origin })
    }

    fn var(&self, name: &str) -> Option<&String> {
        self.around.vars.get(name)
    }

    /// Returns the last assignment of a name in the file.
    fn in_file(&self, name: &str) -> Option<(String, Origin)> {
        let file = self.file.as_ref()?;
        let entry = file.entries.iter().rev().find(|entry| entry.name == name)?;
        let path = file.path.clone();
        let line = entry.line;
        Some((entry.value.clone(), Origin::File { path, line }))
    }

    // An empty variable of a neighbour says nothing to us.
    fn by_neighbour(&self, setting: &Setting) -> Option<(String, Origin)> {
        let name = setting.instead?;
        let text = self.var(name).filter(|text| !text.is_empty())?;
        let text = match setting.kind {
            // Directories that systemd made come as a list.
            Kind::Path => text.split(':').next().unwrap_or(text),
            _ => text,
        };
        Some((text.to_owned(), Origin::Neighbour(name)))
    }
}

/// Reads settings one by one; what is wrong is kept, and a default stands in.
pub(super) struct Reader<'a> {
    pub(super) layers: Layers<'a>,
    pub(super) problems: Vec<Problem>,
    pub(super) shown: BTreeMap<&'static str, Provenance>,
    failed: BTreeSet<&'static str>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(layers: Layers<'a>) -> Self {
        Self {
            layers,
            problems: Vec::new(),
            shown: BTreeMap::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Says whether what was written for a setting did not hold.
    pub(super) fn has_failed(&self, name: &str) -> bool {
        self.failed.contains(name)
    }

    /// Returns a setting as the operator wrote it.
    pub(super) fn place(&self, name: &'static str) -> Place {
        let found = self.layers.find(setting(name));
        let origin = found.map_or(Origin::Default, |found| found.origin);
        Place { name, origin }
    }

    /// Keeps a problem with a setting.
    pub(super) fn fail(&mut self, name: &'static str, problem: Problem) {
        self.failed.insert(name);
        self.problems.push(problem);
    }

    /// Keeps what a setting is, for the report.
    pub(super) fn show(&mut self, name: &'static str, shown: String, origin: Origin) {
        self.shown.insert(name, Provenance { shown, origin });
    }

    /// Reads a setting by a parser that says why a text is not valid.
    ///
    /// Nothing where the setting may be without value and is.
    pub(super) fn take<T>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let setting = setting(name);
        let Some(found) = self.layers.find(setting) else {
            return self.take_default(setting, parse);
        };
        let place = Place {
            name,
            origin: found.origin.clone(),
        };
        let text = found.text.as_str();
        if text.is_empty() && setting.kind.may_be_empty() {
            self.show(name, none(setting), found.origin);
            return None;
        }
        let problem = if text.is_empty() && setting.kind != Kind::Flag {
            Problem::Empty {
                place,
                accepts: setting.kind.accepts(),
                example: setting.example,
            }
        } else if text.contains('\u{fffd}') {
            Problem::not_valid(setting, place, text, "it is not UTF-8".to_owned())
        } else {
            match parse(text) {
                Ok(value) => {
                    self.show(name, found.text, found.origin);
                    return Some(value);
                }
                Err(_) if setting.kind == Kind::Flag => Problem::NotBoolean {
                    place,
                    text: found.text,
                },
                Err(why) => Problem::not_valid(setting, place, text, why),
            }
        };
        self.fail(name, problem);
        self.take_default(setting, parse)
    }

    fn take_default<T>(
        &mut self,
        setting: &'static Setting,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        match setting.default {
            Preset::Is(text) => {
                self.show(setting.name, text.to_owned(), Origin::Default);
                parse(text).ok()
            }
            Preset::Nothing(_) | Preset::Required => {
                self.show(setting.name, none(setting), Origin::Default);
                None
            }
        }
    }

    fn must<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> T {
        self.take(name, parse)
            .expect("a setting that must have a value has a default that parses")
    }

    pub(super) fn text(&mut self, name: &'static str) -> String {
        self.must(name, |text| Ok(text.to_owned()))
    }

    pub(super) fn maybe_text(&mut self, name: &'static str) -> Option<String> {
        self.take(name, |text| Ok(text.to_owned()))
    }

    /// Reads a text that a check of its own has to accept.
    pub(super) fn checked(
        &mut self,
        name: &'static str,
        check: impl Fn(&str) -> Result<String, String>,
    ) -> String {
        self.must(name, check)
    }

    /// Reads one of the words of a choice as the value that it stands for.
    pub(super) fn choice<T: Copy>(&mut self, name: &'static str, words: &[(&str, T)]) -> T {
        self.must(name, |text| {
            let text = text.trim().to_lowercase();
            words
                .iter()
                .find(|(word, _)| *word == text)
                .map(|(_, value)| *value)
                .ok_or_else(|| "there is no such word".to_owned())
        })
    }

    pub(super) fn path(&mut self, name: &'static str) -> PathBuf {
        let cwd = self.layers.around.cwd.clone();
        let path = self.must(name, |text| path(&cwd, text));
        self.show_path(name, &path);
        path
    }

    pub(super) fn maybe_path(&mut self, name: &'static str) -> Option<PathBuf> {
        let cwd = self.layers.around.cwd.clone();
        let path = self.take(name, |text| path(&cwd, text))?;
        self.show_path(name, &path);
        Some(path)
    }

    fn show_path(&mut self, name: &'static str, path: &Path) {
        if let Some(provenance) = self.shown.get_mut(name) {
            provenance.shown = path.display().to_string();
        }
    }

    /// Reads a whole number in the range of its setting.
    pub(super) fn whole<T: TryFrom<u64>>(&mut self, name: &'static str) -> T {
        self.must(name, |text| whole(setting(name), text))
    }

    pub(super) fn maybe_whole<T: TryFrom<u64>>(&mut self, name: &'static str) -> Option<T> {
        self.take(name, |text| whole(setting(name), text))
    }

    pub(super) fn secs(&mut self, name: &'static str) -> Duration {
        Duration::from_secs(self.whole(name))
    }

    pub(super) fn maybe_secs(&mut self, name: &'static str) -> Option<Duration> {
        self.maybe_whole(name).map(Duration::from_secs)
    }

    pub(super) fn maybe_size(&mut self, name: &'static str) -> Option<ByteSize> {
        self.take(name, |text| {
            ByteSize::parse(text).map_err(|_| "it is not a size".to_owned())
        })
    }

    pub(super) fn maybe_cpus(&mut self, name: &'static str) -> Option<Cpus> {
        self.take(name, |text| {
            let number = syntax::decimal(text)?;
            Cpus::new(number).map_err(|_| "it is not a number of processors".to_owned())
        })
    }

    pub(super) fn flag(&mut self, name: &'static str) -> bool {
        self.must(name, |text| syntax::flag(text).ok_or_else(String::new))
    }

    /// Records that a secret is there, and whence.
    pub(super) fn show_secret(&mut self, name: &'static str, origin: Origin) {
        self.show(name, SET.to_owned(), origin);
    }
}

/// Returns the setting of a name that this module's callers wrote.
pub(super) fn setting(name: &'static str) -> &'static Setting {
    settings::find(name).expect("the name is one of the table")
}

fn none(setting: &Setting) -> String {
    match setting.default {
        Preset::Nothing(consequence) => format!("({consequence})"),
        Preset::Is(_) | Preset::Required => "(none)".to_owned(),
    }
}

fn whole<T: TryFrom<u64>>(setting: &Setting, text: &str) -> Result<T, String> {
    let (min, max) = match setting.kind {
        Kind::Whole(min, max) | Kind::MaybeWhole(min, max) => (min, max),
        Kind::Secs(min) | Kind::MaybeSecs(min) => (min, SECS_MAX),
        _ => (0, u64::MAX),
    };
    let number = syntax::whole(text, min, max)?;
    T::try_from(number).map_err(|_| format!("it is not from {min} to {max}"))
}

fn path(cwd: &Path, text: &str) -> Result<PathBuf, String> {
    if text.contains('\0') {
        return Err("it holds a NUL".to_owned());
    }
    Ok(cwd.join(text))
}
