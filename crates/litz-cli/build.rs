//! Sets `LITZ_COMMIT`, the commit that the program is built from, for `litz --version` and for
//! every result.

use std::env;
use std::path::{Path, PathBuf};

#[path = "build/commit.rs"]
mod commit;

fn main() {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = package.parent().and_then(Path::parent).unwrap_or(&package);
    let found = commit::find(root);
    for path in &found.watched {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/commit.rs");
    println!("cargo::rustc-env=LITZ_COMMIT={}", found.name);
}
