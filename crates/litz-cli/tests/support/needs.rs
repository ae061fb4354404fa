//! What a test needs of the system: root, and programs. A test that lacks something says so and is
//! skipped. With LITZ_TEST_STRICT=1, which `make test-programs` sets, it fails.

use std::path::{Path, PathBuf};

/// Where programs are that are not for every user, and those of Go.
const MORE_FOLDERS: &str = ":/usr/sbin:/sbin:/usr/local/bin:/usr/local/go/bin";

/// Says why a test, or a part of one, is skipped. Fails with LITZ_TEST_STRICT=1.
#[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
pub fn skipped(why: &str) {
    let is_strict = std::env::var_os("LITZ_TEST_STRICT").is_some_and(|value| value == "1");
    assert!(!is_strict, "skipped in spite of LITZ_TEST_STRICT=1: {why}");
    eprintln!("SKIPPED: {why}");
}

/// Says that the kernel lacks something that no program can bring: never an error.
#[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
pub fn skipped_by_the_kernel(lacks: &str) {
    eprintln!("SKIPPED: this kernel has no {lacks}");
}

/// Whether the tests have root on Linux; says that the test is skipped otherwise.
pub fn has_root() -> bool {
    let is_root = cfg!(target_os = "linux") && rustix::process::geteuid().is_root();
    if !is_root {
        skipped("network namespaces need root on Linux");
    }
    is_root
}

/// Whether all programs are there; says that the test is skipped otherwise.
pub fn has_programs(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| path_of(program).is_none());
    if let Some(missing) = missing {
        skipped(&format!("the program {missing} is missing (scripts/need installs it)"));
    }
    missing.is_none()
}

/// The path of a program.
pub fn path_of(program: &str) -> Option<PathBuf> {
    let folders = std::env::var("PATH").unwrap_or_default() + MORE_FOLDERS;
    folders.split(':').map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}
