//! The processor time of idle engines. A separate test program, because it counts the work of its
//! threads.

#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "these are tests of real threads")]

#[expect(dead_code, reason = "shared with tests that use more of it")]
mod world;

use std::time::Duration;

use litz::Placement;
use world::{Variant, Wire, World};

/// Returns the time in nanoseconds on a processor, and the number of times scheduled, over all
/// engine threads of this program.
fn engine_work() -> (u64, u64) {
    let mut total = (0, 0);
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let Ok(name) = std::fs::read_to_string(task.join("comm")) else { continue };
        if name.trim() == "litz-engine" {
            let stat = std::fs::read_to_string(task.join("schedstat")).unwrap();
            let fields: Vec<u64> = stat.split_whitespace().map(|field| field.parse().unwrap()).collect();
            total = (total.0 + fields[0], total.1 + fields[2]);
        }
    }
    total
}

#[test]
fn idle_engines_sleep() {
    const SPAN: Duration = Duration::from_millis(600);
    for wire in [Wire::Udp, Wire::Memory] {
        let world = World::new(Variant { wire, placement: Placement::Thread });
        let server = world.server(world.config());
        let client = world.client(world.config());
        let connections: Vec<_> = (0..10).map(|_| world.connect(&client, server.local_addr())).collect();
        let accepted: Vec<_> = connections.iter().map(|_| server.accept().unwrap()).collect();
        // The last acknowledgements and probes of the handshakes; and after a quiet second,
        // connections give memory back.
        std::thread::sleep(Duration::from_millis(1700));
        let before = engine_work();
        assert!(before.0 > 0, "the engines have done something");
        std::thread::sleep(SPAN);
        let after = engine_work();
        let busy = Duration::from_nanos(after.0 - before.0);
        assert!(busy < SPAN / 20, "two idle engines worked for {busy:?} of {SPAN:?} over {wire:?}");
        let runs = after.1 - before.1;
        assert!(runs < 20, "two idle engines woke up {runs} times in {SPAN:?} over {wire:?}");
        drop(accepted);
    }
}
