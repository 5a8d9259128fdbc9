//! What becomes of sessions when their engine is stopped, killed, frozen or full.

use std::fs;
use std::path::Path;

use crate::support::docker::IMAGE;
use crate::support::second_engine::{DataRoot, LiveRestore, SecondEngine};

#[test]
fn an_engine_of_a_test_leaves_nothing_behind() {
    let mut engine = SecondEngine::start(LiveRestore::On, DataRoot::Disk(64));
    let run = [
        "run",
        "--detach",
        "--init",
        "--network=none",
        IMAGE,
        "sleep",
        "1000",
    ];
    let id = engine.docker(&run);
    engine.kill();
    let processes = engine.processes();
    assert_eq!(processes.keys().collect::<Vec<_>>(), [&id]);
    engine.start_again(LiveRestore::On);
    engine.kill_containerd();
    let dir = engine.socket().parent().unwrap().to_owned();
    drop(engine);
    for pid in &processes[&id] {
        assert!(!Path::new("/proc").join(pid.to_string()).exists());
    }
    let group = Path::new("/sys/fs/cgroup/memory/docker").join(&id);
    assert!(!group.exists() && !dir.exists());
    let disks = fs::read_dir("/sys/block").unwrap().filter_map(|block| {
        fs::read_to_string(block.unwrap().path().join("loop/backing_file")).ok()
    });
    let ours = dir.to_str().unwrap();
    assert_eq!(disks.filter(|file| file.contains(ours)).count(), 0);
}
