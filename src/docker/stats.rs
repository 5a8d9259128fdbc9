//! Asks the engine what a container uses, where its control groups cannot be read.
//!
//! Older engines take a second for it. Many can be asked at once.

use serde::Deserialize;

use super::body::parse;
use super::call::Call;
use super::engine::Engine;
use super::error::{Error, Kind};
use super::path::Path;

/// What a container uses at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawStats {
    /// Memory in bytes, file cache included.
    pub memory_usage: u64,
    /// The ceiling of its memory in bytes; the host's memory where it has none.
    pub memory_limit: Option<u64>,
    /// File cache in bytes that the kernel would give up first.
    pub inactive_file: u64,
    /// Processor time so far, in nanoseconds.
    pub cpu_total_ns: u64,
    /// Processes and threads, where the engine counts them.
    pub pids: Option<u64>,
}

impl RawStats {
    /// Returns memory in use in bytes, without the inactive file cache.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_usage.saturating_sub(self.inactive_file)
    }

    /// Reads a sample; `None` is the all-zero one of a container that does not run.
    fn parse(body: &[u8]) -> Result<Option<Self>, Kind> {
        let body: StatsBody = parse("a sample of usage", body)?;
        let memory = body.memory.unwrap_or_default();
        let files = memory.stats.unwrap_or_default();
        let cpu_total_ns = body.cpu.cpu_usage.total_usage;
        let memory_usage = memory.usage.unwrap_or(0);
        let pids = body.pids.and_then(|pids| pids.current);
        if cpu_total_ns == 0 && memory_usage == 0 && pids.unwrap_or(0) == 0 {
            return Ok(None);
        }
        Ok(Some(Self {
            memory_usage,
            memory_limit: memory.limit.filter(|limit| 0 < *limit),
            // The first is of the first hierarchy, whose second counts no children.
            inactive_file: files
                .total_inactive_file
                .or(files.inactive_file)
                .unwrap_or(0),
            cpu_total_ns,
            pids,
        }))
    }
}

#[derive(Deserialize)]
struct StatsBody {
    #[serde(rename = "cpu_stats")]
    cpu: CpuBody,
    #[serde(rename = "memory_stats")]
    memory: Option<MemoryBody>,
    #[serde(rename = "pids_stats")]
    pids: Option<PidsBody>,
}

#[derive(Deserialize)]
struct CpuBody {
    cpu_usage: CpuUsageBody,
}

#[derive(Deserialize)]
struct CpuUsageBody {
    #[serde(default)]
    total_usage: u64,
}

#[derive(Default, Deserialize)]
struct MemoryBody {
    usage: Option<u64>,
    limit: Option<u64>,
    stats: Option<FilesBody>,
}

#[derive(Default, Deserialize)]
struct FilesBody {
    total_inactive_file: Option<u64>,
    inactive_file: Option<u64>,
}

#[derive(Deserialize)]
struct PidsBody {
    current: Option<u64>,
}

impl Engine {
    /// Samples what a container uses; `None` if it does not run or does not exist.
    pub async fn stats(&self, id: &str) -> Result<Option<RawStats>, Error> {
        const NAME: &str = "sample what a container uses";
        let path = Path::new(&["containers", id, "stats"])
            .with("stream", "0")
            .with("one-shot", "1");
        match self
            .call(Call::get(NAME, path, self.deadlines().look))
            .await
        {
            Ok(answer) => RawStats::parse(&answer.body).map_err(|kind| self.failure(NAME, kind)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::testing::{Answer, FakeEngine};

    #[test]
    fn both_hierarchies_of_control_groups_are_read() {
        let first = include_bytes!("../../tests/fixtures/docker/stats-1.41-cgroup1.json");
        let expected = RawStats {
            memory_usage: 2_666_496,
            memory_limit: Some(67_108_864),
            inactive_file: 1_982_464,
            cpu_total_ns: 40_743_187,
            pids: Some(2),
        };
        assert_eq!(RawStats::parse(first).unwrap(), Some(expected));
        assert_eq!(expected.memory_bytes(), 684_032);
        let second = include_bytes!("../../tests/fixtures/docker/stats-1.52-cgroup2.json");
        let expected = RawStats {
            memory_usage: 5_242_880,
            memory_limit: Some(536_870_912),
            inactive_file: 1_048_576,
            cpu_total_ns: 40_743_000,
            pids: Some(3),
        };
        assert_eq!(RawStats::parse(second).unwrap(), Some(expected));
    }

    #[tokio::test]
    async fn a_container_that_does_not_run_has_no_usage() {
        let stopped = include_str!("../../tests/fixtures/docker/stats-stopped-1.41.json");
        for answer in [
            Answer::new(200, stopped),
            Answer::new(404, r#"{"message":"No such container"}"#),
        ] {
            let fake = FakeEngine::new(move |_| answer.clone());
            assert_eq!(fake.client().stats("c").await.unwrap(), None);
            let line = fake.lines().pop().unwrap();
            assert_eq!(line, "GET /v1.41/containers/c/stats?stream=0&one-shot=1");
        }
    }
}
