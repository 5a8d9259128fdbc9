//! Checks the terms of a policy against one another, so that every policy is valid.

use std::fmt;
use std::ops::{Deref, RangeInclusive};

use super::recipe::{self, InvalidRecipe};
use super::{Ceilings, Home, Runtime, Source, Terms};
use crate::id::Alias;
use crate::quantity::ByteSize;

/// Bytes of the smallest memory ceiling that the engine accepts.
pub const MEM_BYTES_MIN: u64 = 6 << 20;
/// The smallest share of a processor that the kernel takes: 1 ms in 100 ms.
pub const CPUS_MIN: f64 = 0.01;
/// The smallest weight that a container starts with.
pub const CPU_SHARES_MIN: u64 = 2;
/// The largest weight that the engine accepts.
pub const CPU_SHARES_MAX: u64 = 262_144;
/// Bytes of the smallest ceiling of a workspace.
pub const WORKSPACE_BYTES_MIN: u64 = 1 << 20;
/// The most processes that Linux counts.
pub const PIDS_MAX: u64 = 4_194_304;
/// Bytes of the longest reference to an image.
pub const IMAGE_BYTES_MAX: usize = 255;
/// Bytes of the longest work directory.
pub const WORK_DIR_BYTES_MAX: usize = 255;

/// What the operator allows; every one that exists is valid.
///
/// It is never edited in place: a change copies [`Policy::terms`], edits the copy
/// and makes a new policy of it, or none.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    terms: Terms,
    home: Home,
}

/// What a ceiling belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The service's own default.
    Service,
    /// The effective ceilings of one runtime.
    Runtime(Alias),
}

/// Says why terms are not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// Sessions may be put to sleep although their files would go with it.
    #[error(
        "evict_idle_after needs workspace_root: hibernating a session whose files live only \
         in its container would discard them silently; set workspace_root or leave \
         evict_idle_after empty"
    )]
    EvictionLosesFiles,
    /// Idle sessions are to sleep although their files would go with it.
    #[error(
        "hibernate_idle_after needs workspace_root: the container of a session is then the \
         only copy of its files; set workspace_root or leave hibernate_idle_after empty"
    )]
    SleepLosesFiles,
    /// Fewer sessions may be open than resident.
    #[error(
        "max_open_sessions ({open}) is below max_sessions ({resident}): a session has to exist \
         to be resident; raise max_open_sessions to {resident} or lower max_sessions to {open}"
    )]
    OpenBelowResident {
        /// `max_open_sessions`.
        open: u64,
        /// `max_sessions`.
        resident: u64,
    },
    /// Workspaces have a ceiling, and there are none to measure.
    #[error(
        "workspace_size needs workspace_root{scope}: files that live in their container are not \
         measured; set workspace_root or leave workspace_size empty"
    )]
    SizeWithoutRoot {
        /// Whose.
        scope: Scope,
    },
    /// Memory with swap is less than memory.
    #[error(
        "memswap_limit ({swap}) is below mem_limit ({mem}){scope}: it counts memory and swap \
         together; raise it, or leave it empty for no swap"
    )]
    SwapBelowMemory {
        /// Whose.
        scope: Scope,
        /// `memswap_limit`.
        swap: String,
        /// `mem_limit`.
        mem: String,
    },
    /// The engine refuses so little memory.
    #[error("mem_limit ({mem}) is below 6m{scope}: the engine refuses less")]
    MemoryTooSmall {
        /// Whose.
        scope: Scope,
        /// `mem_limit`.
        mem: String,
    },
    /// A container with so little of a processor does not start.
    #[error("cpus ({cpus}) is below 0.01{scope}: a container does not start with less")]
    CpusTooFew {
        /// Whose.
        scope: Scope,
        /// `cpus`.
        cpus: String,
    },
    /// A number is outside of its range.
    #[error("{field} ({value}) is not from {min} to {max}{scope}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Whose.
        scope: Scope,
        /// What it is.
        value: u64,
        /// The least it may be.
        min: u64,
        /// The most it may be.
        max: u64,
    },
    /// A name that the engine is given is empty or holds a space.
    #[error("{field} ({value:?}) is empty or holds a space{scope}")]
    BadName {
        /// The field.
        field: &'static str,
        /// Whose.
        scope: Scope,
        /// What it is.
        value: String,
    },
    /// A runtime's image is not a reference.
    #[error(
        "the image of runtime '{alias}' ({image:?}) is not an image reference: write name:tag \
         or name@digest without spaces"
    )]
    BadImage {
        /// The runtime.
        alias: Alias,
        /// Its image.
        image: String,
    },
    /// A runtime's configuration cannot be built.
    #[error("runtime '{alias}' cannot be built: {source}")]
    BadRecipe {
        /// The runtime.
        alias: Alias,
        /// Why.
        source: InvalidRecipe,
    },
    /// The work directory is not a plain absolute path.
    #[error(
        "work_dir ({0:?}) is not a plain absolute path below /: write one such as /workspace, \
         of letters, digits and . _ - +"
    )]
    BadWorkDir(String),
    /// The size of `/tmp` is not one that the kernel takes.
    #[error(
        "tmpfs_size ({0:?}) is not a tmpfs size: write a whole number and one of k, m, g, or a \
         percentage, as in 64m or 10%, and nothing for no tmpfs"
    )]
    BadTmpfs(String),
}

impl fmt::Display for Scope {
    /// Completes a sentence: nothing for the service.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service => Ok(()),
            Self::Runtime(alias) => write!(f, " for runtime '{alias}'"),
        }
    }
}

impl InvalidPolicy {
    /// Returns the fields at fault, the one to change first in front.
    pub fn fields(&self) -> Vec<&'static str> {
        match self {
            Self::SleepLosesFiles => vec!["hibernate_idle_after", "workspace_root"],
            Self::EvictionLosesFiles => vec!["evict_idle_after", "workspace_root"],
            Self::OpenBelowResident { .. } => vec!["max_open_sessions", "max_sessions"],
            Self::SizeWithoutRoot { scope } => scope.fields(&["workspace_size", "workspace_root"]),
            Self::SwapBelowMemory { scope, .. } => scope.fields(&["memswap_limit", "mem_limit"]),
            Self::MemoryTooSmall { scope, .. } => scope.fields(&["mem_limit"]),
            Self::CpusTooFew { scope, .. } => scope.fields(&["cpus"]),
            Self::OutOfRange { scope, field, .. } | Self::BadName { scope, field, .. } => {
                scope.fields(&[field])
            }
            Self::BadImage { .. } | Self::BadRecipe { .. } => vec!["runtimes"],
            Self::BadWorkDir(_) => vec!["work_dir"],
            Self::BadTmpfs(_) => vec!["tmpfs_size"],
        }
    }
}

impl Scope {
    fn fields(&self, own: &[&'static str]) -> Vec<&'static str> {
        match self {
            Self::Service => own.to_vec(),
            Self::Runtime(_) => [&["runtimes"], own].concat(),
        }
    }
}

impl Policy {
    /// Makes a policy of terms, or says everything that is wrong with them.
    pub fn new(terms: Terms, home: Home) -> Result<Self, Vec<InvalidPolicy>> {
        let mut faults = capacity_faults(&terms, home);
        faults.extend(interior_faults(&terms));
        let service = ceiling_faults(&Scope::Service, &terms.ceilings, home);
        for (alias, runtime) in terms.catalogue.iter() {
            faults.extend(runtime_faults(alias, runtime));
            let effective = runtime.ceilings.or(&terms.ceilings);
            let own = ceiling_faults(&Scope::Runtime(alias.clone()), &effective, home);
            let unscoped = ceiling_faults(&Scope::Service, &effective, home);
            // What a runtime inherits is said once, of the service.
            let new = own.into_iter().zip(unscoped);
            faults.extend(
                new.filter(|(_, plain)| !service.contains(plain))
                    .map(|(own, _)| own),
            );
        }
        faults.extend(service);
        if faults.is_empty() {
            Ok(Self { terms, home })
        } else {
            Err(faults)
        }
    }

    /// Returns the terms, to be copied and edited.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Returns where the files of sessions live.
    pub fn home(&self) -> Home {
        self.home
    }

    /// Returns what a sandbox of this runtime may use.
    pub fn ceilings_of(&self, runtime: &Runtime) -> Ceilings {
        runtime.ceilings.or(&self.terms.ceilings)
    }
}

/// A policy reads as its terms do; there is no way to write them.
impl Deref for Policy {
    type Target = Terms;

    fn deref(&self) -> &Terms {
        &self.terms
    }
}

fn capacity_faults(terms: &Terms, home: Home) -> Vec<InvalidPolicy> {
    let mut faults = Vec::new();
    let capacity = &terms.capacity;
    match home {
        Home::Container if capacity.evict_idle_after.is_some() => {
            faults.push(InvalidPolicy::EvictionLosesFiles);
        }
        Home::Container | Home::Host => {}
    }
    match home {
        Home::Container if terms.lifetimes.hibernate_idle_after.is_some() => {
            faults.push(InvalidPolicy::SleepLosesFiles);
        }
        Home::Container | Home::Host => {}
    }
    if let (Some(open), Some(resident)) = (capacity.max_open_sessions, capacity.max_sessions)
        && open < resident
    {
        faults.push(InvalidPolicy::OpenBelowResident { open, resident });
    }
    faults
}

fn interior_faults(terms: &Terms) -> Vec<InvalidPolicy> {
    let mut faults = Vec::new();
    if !is_work_dir(&terms.interior.work_dir) {
        faults.push(InvalidPolicy::BadWorkDir(terms.interior.work_dir.clone()));
    }
    if let Some(size) = terms
        .interior
        .tmpfs_size
        .as_deref()
        .filter(|s| !is_tmpfs(s))
    {
        faults.push(InvalidPolicy::BadTmpfs(size.to_owned()));
    }
    let limits = &terms.limits;
    let running = u64::try_from(limits.max_running_commands).unwrap_or(u64::MAX);
    for (field, value) in [
        ("execute_timeout", limits.execute_timeout.as_secs()),
        ("max_read_bytes", limits.max_read_bytes),
        ("max_running_commands", running),
    ] {
        faults.extend(range_fault(
            &Scope::Service,
            field,
            value,
            1..=i64::MAX.unsigned_abs(),
        ));
    }
    faults
}

fn runtime_faults(alias: &Alias, runtime: &Runtime) -> Option<InvalidPolicy> {
    match &runtime.source {
        Source::Image(image) if !is_image(image) => Some(InvalidPolicy::BadImage {
            alias: alias.clone(),
            image: image.clone(),
        }),
        Source::Image(_) => None,
        Source::Config(config) => {
            recipe::check(config)
                .err()
                .map(|source| InvalidPolicy::BadRecipe {
                    alias: alias.clone(),
                    source,
                })
        }
    }
}

fn ceiling_faults(scope: &Scope, ceilings: &Ceilings, home: Home) -> Vec<InvalidPolicy> {
    let mut faults = Vec::new();
    match (home, &ceilings.workspace_size) {
        (Home::Container, Some(_)) => faults.push(InvalidPolicy::SizeWithoutRoot {
            scope: scope.clone(),
        }),
        (Home::Container | Home::Host, _) => {}
    }
    if let Some(mem) = &ceilings.mem_limit {
        faults.extend(memory_faults(scope, mem, ceilings.memswap_limit.as_ref()));
    }
    if let Some(cpus) = ceilings.cpus.filter(|cpus| cpus.get() < CPUS_MIN) {
        faults.push(InvalidPolicy::CpusTooFew {
            scope: scope.clone(),
            cpus: cpus.get().to_string(),
        });
    }
    let shares = CPU_SHARES_MIN..=CPU_SHARES_MAX;
    let size = ceilings.workspace_size.as_ref().map(ByteSize::bytes);
    let sizes = WORKSPACE_BYTES_MIN..=i64::MAX.unsigned_abs();
    for (field, value, range) in [
        ("cpu_shares", ceilings.cpu_shares, shares),
        ("pids_limit", ceilings.pids_limit, 1..=PIDS_MAX),
        ("workspace_size", size, sizes),
    ] {
        faults.extend(value.and_then(|value| range_fault(scope, field, value, range)));
    }
    for (field, value) in [
        ("network_mode", &ceilings.network_mode),
        ("oci_runtime", &ceilings.oci_runtime),
    ] {
        if let Some(value) = value.as_ref().filter(|name| !is_plain(name)) {
            faults.push(InvalidPolicy::BadName {
                field,
                scope: scope.clone(),
                value: value.clone(),
            });
        }
    }
    faults
}

fn memory_faults(scope: &Scope, mem: &ByteSize, swap: Option<&ByteSize>) -> Vec<InvalidPolicy> {
    let mut faults = Vec::new();
    if mem.bytes() < MEM_BYTES_MIN {
        faults.push(InvalidPolicy::MemoryTooSmall {
            scope: scope.clone(),
            mem: mem.to_string(),
        });
    }
    if let Some(swap) = swap.filter(|swap| swap.bytes() < mem.bytes()) {
        faults.push(InvalidPolicy::SwapBelowMemory {
            scope: scope.clone(),
            swap: swap.to_string(),
            mem: mem.to_string(),
        });
    }
    faults
}

fn range_fault(
    scope: &Scope,
    field: &'static str,
    value: u64,
    range: RangeInclusive<u64>,
) -> Option<InvalidPolicy> {
    (!range.contains(&value)).then(|| InvalidPolicy::OutOfRange {
        field,
        scope: scope.clone(),
        value,
        min: *range.start(),
        max: *range.end(),
    })
}

/// Says whether a text is one word that can be passed on as it is.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Says whether a text can be a reference to an image; the engine knows more.
pub(super) fn is_image(text: &str) -> bool {
    is_plain(text) && text.len() <= IMAGE_BYTES_MAX && !text.starts_with(['-', '/', ':', '@'])
}

// The path ends up in a Dockerfile, in a mount and in shells, hence so plain.
fn is_work_dir(text: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+');
    text.len() <= WORK_DIR_BYTES_MAX
        && text.starts_with('/')
        && text.chars().all(plain)
        && text.split('/').any(|part| !part.is_empty())
        && !text.split('/').any(|part| matches!(part, "." | ".."))
}

// The kernel's parser takes whole numbers only; what follows a comma are more
// mount options, such as `exec`.
fn is_tmpfs(text: &str) -> bool {
    let mut parts = text.split(',');
    let size = parts.next().unwrap_or_default();
    let digits = size.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G', '%']);
    let option = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '=' || c == '_')
    };
    size.len() <= digits.len() + 1
        && digits.parse::<u64>().is_ok_and(|n| 0 < n)
        && digits.chars().all(|c| c.is_ascii_digit())
        && parts.all(option)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::super::Catalogue;
    use super::super::sample::terms;
    use super::*;
    use crate::quantity::Cpus;

    type Edit = fn(&mut Terms);

    fn faults(edit: impl FnOnce(&mut Terms)) -> Vec<String> {
        let mut terms = terms();
        edit(&mut terms);
        let faults = Policy::new(terms, Home::Container)
            .err()
            .unwrap_or_default();
        faults.iter().map(ToString::to_string).collect()
    }

    fn size(text: &str) -> ByteSize {
        ByteSize::parse(text).unwrap()
    }

    #[test]
    fn there_is_always_a_valid_policy() {
        let policy = Policy::new(terms(), Home::Container).unwrap();
        assert_eq!(policy.terms(), &terms(), "good terms hold as they are");
        let bad: [Edit; 11] = [
            |t| t.capacity.evict_idle_after = Some(Duration::ZERO),
            |t| t.capacity.max_open_sessions = Some(19),
            |t| t.ceilings.memswap_limit = Some(size("512m")),
            |t| t.ceilings.mem_limit = Some(size("5m")),
            |t| t.ceilings.pids_limit = Some(0),
            |t| t.ceilings.cpu_shares = Some(1),
            |t| t.ceilings.cpus = Some(Cpus::new(0.005).unwrap()),
            |t| t.ceilings.network_mode = Some(String::new()),
            |t| t.interior.work_dir = "workspace".to_owned(),
            |t| t.interior.tmpfs_size = Some("lots".to_owned()),
            |t| t.limits.execute_timeout = Duration::ZERO,
        ];
        for (nth, edit) in bad.into_iter().enumerate() {
            let mut terms = policy.terms().clone();
            edit(&mut terms);
            assert!(Policy::new(terms, policy.home()).is_err(), "edit {nth}");
        }
    }

    #[test]
    fn eviction_needs_files_that_outlive_a_container() {
        let mut terms = terms();
        terms.capacity.evict_idle_after = Some(Duration::ZERO);
        assert!(Policy::new(terms.clone(), Home::Host).is_ok());
        assert_eq!(
            Policy::new(terms, Home::Container),
            Err(vec![InvalidPolicy::EvictionLosesFiles])
        );
    }

    #[test]
    fn sleep_without_need_takes_files_that_outlive_a_container() {
        let mut terms = terms();
        terms.lifetimes.hibernate_idle_after = Some(Duration::ZERO);
        assert!(Policy::new(terms.clone(), Home::Host).is_ok());
        assert_eq!(
            Policy::new(terms, Home::Container),
            Err(vec![InvalidPolicy::SleepLosesFiles])
        );
    }

    #[test]
    fn fewer_open_than_resident_sessions_are_refused_with_a_remedy() {
        assert_eq!(
            faults(|t| t.capacity.max_open_sessions = Some(5)),
            [
                "max_open_sessions (5) is below max_sessions (20): a session has to exist to be \
                 resident; raise max_open_sessions to 20 or lower max_sessions to 5"
            ]
        );
    }

    #[test]
    fn a_ceiling_that_fits_the_service_may_still_not_fit_a_runtime() {
        let found = faults(|t| {
            t.ceilings.memswap_limit = Some(size("2g"));
            let alias = Alias::parse("big").unwrap();
            let runtime = Runtime {
                source: Source::Image("big:1".to_owned()),
                description: String::new(),
                ceilings: Ceilings {
                    mem_limit: Some(size("4g")),
                    ..Ceilings::default()
                },
                keep_awake: crate::policy::KeepAwake::No,
                users: crate::policy::Users::Own,
            };
            let runtimes = BTreeMap::from([(alias.clone(), runtime)]);
            t.catalogue = Catalogue::new(runtimes, alias).unwrap();
        });
        assert_eq!(
            found,
            [
                "memswap_limit (2g) is below mem_limit (4g) for runtime 'big': it counts memory \
                 and swap together; raise it, or leave it empty for no swap"
            ]
        );
    }

    #[test]
    fn everything_wrong_is_said_at_once_and_once() {
        let found = faults(|t| {
            t.capacity.evict_idle_after = Some(Duration::ZERO);
            t.ceilings.mem_limit = Some(size("1m"));
            t.interior.work_dir = "/".to_owned();
        });
        assert_eq!(found.len(), 3, "{found:#?}");
        assert!(!found.concat().contains("for runtime"), "{found:#?}");
    }

    #[test]
    fn work_directories_are_plain_and_absolute() {
        for good in ["/workspace", "/a/b.c", "/srv/würfel", "/w/"] {
            assert!(is_work_dir(good), "{good}");
        }
        for bad in [
            "", "/", "w", "/a b", "/a/../b", "/a;b", "/a:b", "/$x", "//", "/./",
        ] {
            assert!(!is_work_dir(bad), "{bad}");
        }
    }

    #[test]
    fn tmpfs_sizes_are_those_of_the_kernel() {
        for good in ["64m", "1G", "4096", "10%", "64m,exec", "1g,nr_inodes=4k"] {
            assert!(is_tmpfs(good), "{good}");
        }
        for bad in [
            "",
            "0",
            "m",
            "1.5g",
            "64mb",
            "64mm",
            "64m,",
            "64m, exec",
            "+1m",
            "-1",
        ] {
            assert!(!is_tmpfs(bad), "{bad}");
        }
    }
}
