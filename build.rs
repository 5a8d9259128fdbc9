//! Tells the program which commit it was built from, and builds the agent into it.
//!
//! The agent is a crate of its own, linked statically for the very target of the daemon,
//! and built in a directory of its own, so that no lock is waited for that is held. What
//! was set for the daemon's own build (flags, wrappers, directories) is not set for it.
//! With `SANDBOXD_AGENT` at build time, a program that is built already is taken.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CRATE: &str = "src/bin/sandbox-agent";
const PROTOCOL: &str = "src/agent/protocol";

fn main() -> Result<(), String> {
    tell_commit();
    embed_agent()
}

fn tell_commit() {
    for name in ["HEAD", "logs/HEAD"] {
        // A name that is missing would have all of it built anew each time.
        if let Some(path) =
            git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists())
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let commit = commit.as_deref().unwrap_or("unknown");
    println!("cargo::rustc-env=SANDBOXD_COMMIT={commit}");
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn embed_agent() -> Result<(), String> {
    println!("cargo::rerun-if-env-changed=SANDBOXD_AGENT");
    println!("cargo::rerun-if-changed={CRATE}");
    println!("cargo::rerun-if-changed={PROTOCOL}");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(variable("OUT_DIR")?);
    let program = match std::env::var_os("SANDBOXD_AGENT") {
        Some(path) => {
            println!("cargo::rerun-if-changed={}", Path::new(&path).display());
            Some(PathBuf::from(path))
        }
        None if Path::new(CRATE).join("Cargo.toml").exists() => Some(build_agent(&out)?),
        None => None,
    };
    let bytes = match program {
        Some(path) => {
            fs::read(&path).map_err(|error| format!("read {}: {error}", path.display()))?
        }
        None => Vec::new(),
    };
    let embedded = out.join("sandbox-agent");
    if fs::read(&embedded).ok().as_ref() != Some(&bytes) {
        fs::write(&embedded, bytes)
            .map_err(|error| format!("write {}: {error}", embedded.display()))?;
    }
    Ok(())
}

/// Builds the agent and returns where its program is.
fn build_agent(out: &Path) -> Result<PathBuf, String> {
    let target = variable("TARGET")?;
    let target_dir = out.join("agent");
    let mut cargo = Command::new(variable("CARGO")?);
    cargo
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(Path::new(CRATE).join("Cargo.toml"))
        .arg("--target")
        .arg(&target)
        .arg("--target-dir")
        .arg(&target_dir);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_of_the_daemon_s_build) {
            cargo.env_remove(name);
        }
    }
    // For a named target, these are not for the macros that the compiler itself runs.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    let status = cargo
        .status()
        .map_err(|error| format!("run cargo: {error}"))?;
    if !status.success() {
        return Err(format!(
            "the agent could not be built for {}: see above, or name a program that is built already with SANDBOXD_AGENT",
            target.display()
        ));
    }
    Ok(target_dir
        .join(target.to_str().unwrap_or_default())
        .join("release/sandbox-agent"))
}

/// Tells whether a variable was set for the build of the daemon, or would lead that of the
/// agent elsewhere.
fn is_of_the_daemon_s_build(name: &str) -> bool {
    let led = [
        "RUSTFLAGS",
        "RUSTDOCFLAGS",
        "RUSTDOC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CLIPPY_ARGS",
        "CLIPPY_CONF_DIR",
        "__CARGO_FIX_PLZ",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "CARGO_INCREMENTAL",
        "OUT_DIR",
        "OPT_LEVEL",
        "PROFILE",
        "DEBUG",
        "TARGET",
        "HOST",
        "NUM_JOBS",
    ];
    let begins = [
        "CARGO_BUILD_",
        "CARGO_CFG_",
        "CARGO_FEATURE_",
        "CARGO_PKG_",
        "CARGO_PROFILE_",
        "CARGO_MANIFEST_",
        "DEP_",
    ];
    led.contains(&name) || begins.iter().any(|begin| name.starts_with(begin))
}

fn variable(name: &str) -> Result<OsString, String> {
    std::env::var_os(name).ok_or_else(|| format!("cargo sets no {name} for this program"))
}
