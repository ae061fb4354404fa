//! What both ends need before they begin: threads, and a limit.

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

/// Threads for sockets. More serve more connections at a time; the protocol has threads of its own.
const WORKERS_MAX: usize = 4;

/// Threads that look names up, of which one may take as long as its resolver.
const LOOKUPS_MAX: usize = 64;

/// The runtime of the sockets.
pub(super) fn runtime() -> Result<Runtime, String> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX);
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).max_blocking_threads(LOOKUPS_MAX).enable_all().build();
    runtime.map_err(|error| format!("cannot start the threads for sockets: {error}"))
}

/// Each connection takes a descriptor. Raises the soft limit to the hard one.
pub(super) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Without the right to do that, connections wait where there are too many.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
