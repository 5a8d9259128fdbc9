//! Puts a file into a container that need not run.

use bytes::Bytes;

use super::call::Call;
use super::engine::Engine;
use super::error::Error;
use super::path::Path;

/// What became of a file that was to be put into a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Archived {
    /// It is there.
    Now,
    /// There is no such container.
    Gone,
}

/// A file for a container, with the directories above it.
#[derive(Clone, Copy, Debug)]
pub struct PackedFile<'f> {
    /// Its path from the root, without the leading slash; at most 100 bytes.
    pub path: &'f str,
    /// Its permissions.
    pub mode: u32,
    /// What it holds.
    pub bytes: &'f [u8],
}

const BLOCK_BYTES: usize = 512;
/// Permissions of the directories above the file.
const DIRECTORY_MODE: u32 = 0o755;

impl Engine {
    /// Writes a file into a container's own file system, as the superuser's.
    pub async fn put_file(&self, container: &str, file: PackedFile<'_>) -> Result<Archived, Error> {
        const NAME: &str = "put a file into a container";
        let path = Path::new(&["containers", container, "archive"]).with("path", "/");
        let call = Call::put(NAME, path, self.deadlines().create).tar(Bytes::from(tar(file)));
        match self.call(call).await {
            Ok(_) => Ok(Archived::Now),
            Err(error) if error.is_missing() => Ok(Archived::Gone),
            Err(error) => Err(error),
        }
    }
}

/// Packs a file with the directories above it.
fn tar(file: PackedFile<'_>) -> Vec<u8> {
    let mut packed = Vec::with_capacity(file.bytes.len() + 6 * BLOCK_BYTES);
    for (at, _) in file.path.match_indices('/') {
        let name = format!("{}/", file.path.get(..at).unwrap_or_default());
        packed.extend_from_slice(&header(&name, DIRECTORY_MODE, b'5', 0));
    }
    packed.extend_from_slice(&header(file.path, file.mode, b'0', file.bytes.len()));
    packed.extend_from_slice(file.bytes);
    let whole = packed.len().next_multiple_of(BLOCK_BYTES);
    // Two empty blocks are the end.
    packed.resize(whole + 2 * BLOCK_BYTES, 0);
    packed
}

/// Writes the head of one entry, in the form of POSIX.
fn header(name: &str, mode: u32, kind: u8, length: usize) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    put(&mut block, 0, name.as_bytes());
    put(&mut block, 100, format!("{mode:07o}").as_bytes());
    put(&mut block, 108, b"0000000");
    put(&mut block, 116, b"0000000");
    put(&mut block, 124, format!("{length:011o}").as_bytes());
    put(&mut block, 136, b"00000000000");
    put(&mut block, 148, b"        ");
    put(&mut block, 156, &[kind]);
    put(&mut block, 257, b"ustar\x0000");
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    put(&mut block, 148, format!("{sum:06o}\0 ").as_bytes());
    block
}

fn put(block: &mut [u8; BLOCK_BYTES], at: usize, text: &[u8]) {
    for (slot, byte) in block.iter_mut().skip(at).zip(text) {
        *slot = *byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::testing::{Answer, FakeEngine};

    const FILE: PackedFile<'static> = PackedFile {
        path: ".sandboxd/sandbox-agent",
        mode: 0o555,
        bytes: b"program",
    };

    #[test]
    fn a_file_is_packed_as_tar_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let packed = dir.path().join("packed.tar");
        std::fs::write(&packed, tar(FILE)).unwrap();
        let unpacked = std::process::Command::new("tar")
            .args(["-tvf", packed.to_str().unwrap()])
            .output()
            .unwrap();
        let listed = String::from_utf8_lossy(&unpacked.stdout);
        let lines: Vec<&str> = listed.lines().collect();
        assert!(
            unpacked.status.success() && unpacked.stderr.is_empty(),
            "{unpacked:?}"
        );
        assert!(lines[0].starts_with("drwxr-xr-x") && lines[0].ends_with(".sandboxd/"));
        assert!(lines[1].starts_with("-r-xr-xr-x") && lines[1].contains(" 7 "));
    }

    #[tokio::test]
    async fn a_container_that_is_gone_is_an_outcome() {
        let fake = FakeEngine::new(|line| match line {
            "PUT /v1.41/containers/c/archive?path=%2F" => Answer::new(200, ""),
            _ => Answer::new(404, r#"{"message":"No such container: d"}"#),
        });
        let engine = fake.client();
        assert_eq!(engine.put_file("c", FILE).await.unwrap(), Archived::Now);
        assert_eq!(engine.put_file("d", FILE).await.unwrap(), Archived::Gone);
    }
}
