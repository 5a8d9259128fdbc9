//! Says where this process's directories are for an engine that sees other paths.
//!
//! A daemon in a container has its directories from mounts. The engine resolves the paths of
//! new mounts on its own host, so each directory that a sandbox gets has to be named as the
//! engine knows it:
//!
//! ```text
//! here                    our mount                       for the engine
//! /workspaces/a/workspace volume "ws" at /workspaces      part "a/workspace" of volume "ws",
//!                                                         or /var/lib/docker/volumes/ws/_data/a/workspace
//! /state/agent/1/program  /srv/state bound at /state      /srv/state/agent/1/program
//! ```

use std::path::{Component, Path, PathBuf};

use super::inspect::MountPoint;
use super::version::ApiVersion;

/// Where directories of this process are on the engine's host.
///
/// By default both see the same paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    directories: Vec<Directory>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Directory {
    /// The path here, as it is configured.
    here: PathBuf,
    /// The path on the engine's host.
    there: PathBuf,
    /// The volume that it lies in, where the engine can mount a part of one.
    volume: Option<Volume>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Volume {
    name: String,
    /// Where it lies on the engine's host.
    root: PathBuf,
}

/// What the engine is to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A path of its host, which is ours as well.
    Path(PathBuf),
    /// A path of its host alone. It may lie in the engine's own directory, from which the
    /// engine mounts with a propagation of its choice only.
    Elsewhere(PathBuf),
    /// A part of a volume, which cannot be removed while anything has it.
    Part {
        /// The volume.
        volume: String,
        /// What of it; relative, without `..`, and never empty.
        subpath: PathBuf,
    },
}

/// Why the engine cannot mount a directory of this process into a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hidden {
    /// It lies in the container's own write layer.
    #[error("it lies in the container's own layer and would go with the container")]
    OwnLayer,
    /// It lies in a mount that the engine did not make.
    #[error(
        "it lies in what is mounted at {}, which the engine does not name among the mounts of this container, as it names no --tmpfs",
        at.display()
    )]
    Unnamed {
        /// The path of the mount.
        at: PathBuf,
    },
    /// It lies in memory.
    #[error("it lies in a {kind} mount at {}, which no other container can have", at.display())]
    Kind {
        /// The engine's word for the mount.
        kind: String,
        /// The path of the mount.
        at: PathBuf,
    },
    /// It may not be written to.
    #[error("it lies in what is mounted read-only at {}", at.display())]
    ReadOnly {
        /// The path of the mount.
        at: PathBuf,
    },
    /// It lies in a volume of which only all can be mounted.
    #[error(
        "it lies in the volume {volume:?} of the driver {driver:?}: this engine speaks API {api}, and only from {PARTS_SINCE} on can a part of such a volume be mounted"
    )]
    Whole {
        /// The volume.
        volume: String,
        /// What keeps it.
        driver: String,
        /// The version agreed on.
        api: ApiVersion,
    },
    /// The engine does not say where the mount comes from.
    #[error("the engine does not say where the mount at {} comes from", at.display())]
    Nowhere {
        /// The path of the mount.
        at: PathBuf,
    },
}

/// From this version of the API on a part of a volume can be mounted.
pub const PARTS_SINCE: ApiVersion = ApiVersion::new(1, 45);
/// The driver whose volumes are directories of the engine's host.
const LOCAL: &str = "local";

/// What this process sees of its own mounts, and what the engine says of them.
#[derive(Clone, Copy, Debug)]
pub struct Mounts<'a> {
    /// Everything that is mounted here, as the kernel lists it.
    pub points: &'a [PathBuf],
    /// What the engine has mounted in our container.
    pub named: &'a [MountPoint],
    /// The version agreed on with the engine.
    pub api: ApiVersion,
}

impl Outside {
    /// Finds out where a directory is for the engine, and keeps it.
    ///
    /// `real` is what `here` leads to once all links are followed.
    ///
    /// # Errors
    /// The engine could not mount it into a sandbox.
    pub fn add(&mut self, here: &Path, real: &Path, mounts: Mounts<'_>) -> Result<(), Hidden> {
        let (there, volume) = translate(real, mounts)?;
        self.directories.push(Directory {
            here: here.to_path_buf(),
            there,
            volume,
        });
        // A directory may lie in another one: the longest is asked first.
        self.directories
            .sort_by_key(|one| std::cmp::Reverse(one.here.components().count()));
        Ok(())
    }

    /// Returns the path on the engine's host of a path here.
    ///
    /// What lies in no directory that was added keeps its path.
    pub fn path(&self, here: &Path) -> PathBuf {
        self.directories
            .iter()
            .find_map(|one| Some(join(&one.there, here.strip_prefix(&one.here).ok()?)))
            .unwrap_or_else(|| here.to_path_buf())
    }

    /// Returns what the engine is to mount for a path on its host.
    pub fn source(&self, there: &Path) -> Source {
        self.directories
            .iter()
            .find_map(|one| {
                let rest = there.strip_prefix(&one.there).ok()?;
                Some(match &one.volume {
                    None => Source::Elsewhere(there.to_path_buf()),
                    Some(Volume { name, root }) => Source::Part {
                        volume: name.clone(),
                        subpath: there.strip_prefix(root).unwrap_or(rest).to_path_buf(),
                    },
                })
            })
            .unwrap_or_else(|| Source::Path(there.to_path_buf()))
    }
}

fn translate(real: &Path, mounts: Mounts<'_>) -> Result<(PathBuf, Option<Volume>), Hidden> {
    let at = mounts
        .points
        .iter()
        .filter(|point| real.starts_with(point))
        .max_by_key(|point| point.components().count())
        .filter(|point| point.parent().is_some())
        .ok_or(Hidden::OwnLayer)?;
    let rest = real.strip_prefix(at).unwrap_or(Path::new(""));
    let mount = mounts
        .named
        .iter()
        .find(|mount| Path::new(&mount.destination) == at)
        .ok_or_else(|| Hidden::Unnamed { at: at.clone() })?;
    if !mount.is_writable {
        return Err(Hidden::ReadOnly { at: at.clone() });
    }
    let source = Path::new(&mount.source);
    match mount.kind.as_str() {
        "bind" if source.is_absolute() => Ok((join(source, rest), None)),
        "volume" => of_volume(mount, rest, mounts.api),
        "bind" => Err(Hidden::Nowhere { at: at.clone() }),
        kind => Err(Hidden::Kind {
            kind: kind.to_owned(),
            at: at.clone(),
        }),
    }
}

fn of_volume(
    mount: &MountPoint,
    rest: &Path,
    api: ApiVersion,
) -> Result<(PathBuf, Option<Volume>), Hidden> {
    let source = Path::new(&mount.source);
    let has_parts = PARTS_SINCE <= api && !mount.name.is_empty();
    if !has_parts && mount.driver != LOCAL {
        return Err(Hidden::Whole {
            volume: mount.name.clone(),
            driver: mount.driver.clone(),
            api,
        });
    }
    if !source.is_absolute() {
        return Err(Hidden::Nowhere {
            at: PathBuf::from(&mount.destination),
        });
    }
    // Engines differ in whether the path of a part is that of the part.
    let part = relative(&mount.subpath);
    let root = if part.as_os_str().is_empty() || !source.ends_with(&part) {
        source.to_path_buf()
    } else {
        source
            .ancestors()
            .nth(part.components().count())
            .map_or_else(PathBuf::new, Path::to_path_buf)
    };
    let there = join(&join(&root, &part), rest);
    let volume = has_parts.then(|| Volume {
        name: mount.name.clone(),
        root,
    });
    Ok((there, volume))
}

fn relative(text: &str) -> PathBuf {
    Path::new(text)
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

/// Joins without the slash that an empty rest would leave at the end.
fn join(path: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        path.to_path_buf()
    } else {
        path.join(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::inspect::Inspect;
    use crate::docker::own::{Traces, is_ours};

    const OLD: ApiVersion = ApiVersion::new(1, 41);

    fn mount(kind: &str, source: &str, destination: &str) -> MountPoint {
        MountPoint {
            kind: kind.to_owned(),
            source: source.to_owned(),
            destination: destination.to_owned(),
            is_writable: true,
            ..MountPoint::default()
        }
    }

    fn volume(name: &str, destination: &str) -> MountPoint {
        MountPoint {
            name: name.to_owned(),
            driver: LOCAL.to_owned(),
            ..mount(
                "volume",
                &format!("/var/lib/docker/volumes/{name}/_data"),
                destination,
            )
        }
    }

    /// Translates a directory of a container with these mounts, and what lies in it.
    fn found(
        named: &[MountPoint],
        api: ApiVersion,
        real: &str,
    ) -> Result<(PathBuf, Source), Hidden> {
        let mut points: Vec<PathBuf> = named.iter().map(|one| (&one.destination).into()).collect();
        points.extend(["/", "/proc", "/dev", "/run/memory"].map(PathBuf::from));
        let mounts = Mounts {
            points: &points,
            named,
            api,
        };
        let mut outside = Outside::default();
        outside.add(Path::new("/here"), Path::new(real), mounts)?;
        let there = outside.path(Path::new("/here/a/workspace"));
        let source = outside.source(&there);
        Ok((there, source))
    }

    fn part(volume: &str, subpath: &str) -> Source {
        Source::Part {
            volume: volume.to_owned(),
            subpath: PathBuf::from(subpath),
        }
    }

    #[test]
    fn a_directory_of_a_named_volume_is_a_path_to_an_old_engine_and_a_part_to_a_newer_one() {
        let named = [volume("ws", "/workspaces")];
        let path = PathBuf::from("/var/lib/docker/volumes/ws/_data/deep/a/workspace");
        let (there, source) = found(&named, OLD, "/workspaces/deep").unwrap();
        assert_eq!((&there, &source), (&path, &Source::Elsewhere(path.clone())));
        let (there, source) = found(&named, PARTS_SINCE, "/workspaces/deep").unwrap();
        // The path stays the same, so that an upgrade of the engine makes nothing drift.
        assert_eq!((there, source), (path, part("ws", "deep/a/workspace")));
    }

    /// As an engine and a kernel told it of a container with a volume, a directory of the
    /// host, and two in memory.
    #[test]
    fn a_recorded_container_is_recognised_and_its_directories_are_translated() {
        let inspect = include_bytes!("../../tests/fixtures/docker/inspect-contained-1.41.json");
        let traces = Traces::read(
            include_bytes!("../../tests/fixtures/docker/mountinfo-contained.txt"),
            include_str!("../../tests/fixtures/docker/cgroup-contained.txt"),
            "b47caf93319e\n",
        );
        let container = Inspect::parse(inspect).unwrap();
        assert_eq!(traces.candidates[0], container.id);
        assert!(traces.candidates.iter().all(|one| is_ours(one, &container)));
        let mounts = Mounts {
            points: &traces.mount_points,
            named: &container.mounts,
            api: OLD,
        };
        let there = |path: &str| {
            let path = Path::new(path);
            let mut outside = Outside::default();
            outside.add(path, path, mounts)?;
            Ok(outside.path(path))
        };
        let state = "/var/lib/docker/volumes/rec-state/_data/state".into();
        assert_eq!(there("/var/lib/sandboxd/state"), Ok(state));
        assert_eq!(there("/workspaces"), Ok("/srv/workspaces".into()));
        let kind = "tmpfs".to_owned();
        let at = |path: &str| PathBuf::from(path);
        let scratch = Hidden::Kind {
            kind,
            at: at("/scratch"),
        };
        assert_eq!(there("/scratch/run"), Err(scratch));
        let memory = Hidden::Unnamed { at: at("/memory") };
        assert_eq!(there("/memory/run"), Err(memory));
        assert_eq!(there("/run/sandboxd"), Err(Hidden::OwnLayer));
    }

    #[test]
    fn a_directory_of_a_bound_one_is_a_path_to_every_engine() {
        for api in [OLD, PARTS_SINCE] {
            let named = [mount("bind", "/srv/ws", "/workspaces")];
            let path = PathBuf::from("/srv/ws/a/workspace");
            let wanted = (path.clone(), Source::Elsewhere(path));
            assert_eq!(found(&named, api, "/workspaces").unwrap(), wanted);
        }
    }

    #[test]
    fn a_part_of_a_volume_is_found_in_the_volume() {
        for source in ["", "/in/it"] {
            let mut one = volume("ws", "/workspaces");
            one.subpath = "in/it".to_owned();
            one.source.push_str(source);
            let (there, source) = found(&[one], PARTS_SINCE, "/workspaces").unwrap();
            let path = "/var/lib/docker/volumes/ws/_data/in/it/a/workspace";
            assert_eq!(there, Path::new(path));
            assert_eq!(source, part("ws", "in/it/a/workspace"));
        }
    }

    #[test]
    fn the_deepest_mount_decides() {
        let named = [
            mount("bind", "/srv", "/data"),
            volume("state", "/data/state"),
            mount("bind", "/srv/other", "/data/st"),
        ];
        let (there, _) = found(&named, OLD, "/data/state/x").unwrap();
        assert_eq!(
            there,
            Path::new("/var/lib/docker/volumes/state/_data/x/a/workspace")
        );
        let (there, _) = found(&named, OLD, "/data/states").unwrap();
        assert_eq!(there, Path::new("/srv/states/a/workspace"));
    }

    #[test]
    fn what_the_engine_cannot_mount_is_told_with_its_reason() {
        let at = || PathBuf::from("/data");
        let mut read_only = volume("v", "/data");
        read_only.is_writable = false;
        let mut foreign = volume("v", "/data");
        foreign.driver = "nfs".to_owned();
        let whole = Hidden::Whole {
            volume: "v".to_owned(),
            driver: "nfs".to_owned(),
            api: OLD,
        };
        let memory = Hidden::Kind {
            kind: "tmpfs".to_owned(),
            at: at(),
        };
        for (named, real, wanted) in [
            (volume("v", "/other"), "/data", Hidden::OwnLayer),
            (
                volume("v", "/data"),
                "/run/memory/x",
                Hidden::Unnamed {
                    at: "/run/memory".into(),
                },
            ),
            (mount("tmpfs", "", "/data"), "/data/x", memory),
            (read_only, "/data", Hidden::ReadOnly { at: at() }),
            (
                mount("bind", "", "/data"),
                "/data",
                Hidden::Nowhere { at: at() },
            ),
            (foreign.clone(), "/data", whole),
        ] {
            assert_eq!(found(&[named], OLD, real).unwrap_err(), wanted);
        }
        // A newer engine mounts a part of it, whoever keeps it.
        let (_, source) = found(&[foreign], PARTS_SINCE, "/data").unwrap();
        assert_eq!(source, part("v", "a/workspace"));
    }

    #[test]
    fn a_path_in_no_directory_of_ours_and_a_daemon_in_no_container_keep_their_paths() {
        let path = Path::new("/srv/sandboxd/a/workspace");
        let none = Outside::default();
        assert_eq!(none.path(path), path);
        assert_eq!(none.source(path), Source::Path(path.to_path_buf()));
        let mut some = Outside::default();
        let named = [volume("ws", "/srv/sandboxd-other")];
        let points = ["/", "/srv/sandboxd-other"].map(PathBuf::from);
        let mounts = Mounts {
            points: &points,
            named: &named,
            api: OLD,
        };
        let other = Path::new("/srv/sandboxd-other");
        some.add(other, other, mounts).unwrap();
        assert_eq!(some.path(path), path);
        assert_eq!(some.source(path), Source::Path(path.to_path_buf()));
    }
}
