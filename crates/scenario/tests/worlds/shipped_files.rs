//! The scenario files in `scenarios/`.

use std::path::{Path, PathBuf};

use scenario::model::Scenario;
use scenario::parse::parse;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// Returns the names of all files, without their extension, sorted.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder())
        .expect("the folder exists")
        .filter_map(|entry| {
            let path = entry.expect("readable").path();
            let is_scenario = path.extension().is_some_and(|extension| extension == "toml");
            is_scenario.then(|| path.file_stem().expect("a name").to_string_lossy().into_owned())
        })
        .collect();
    names.sort();
    names
}

pub(crate) fn read(name: &str) -> Scenario {
    let path = folder().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let trace = |name: &str| {
        let text = std::fs::read_to_string(folder().join(name)).map_err(|error| error.to_string())?;
        text.parse().map_err(|error: netem::TraceError| error.to_string())
    };
    parse(&format!("{name}.toml"), &text, &trace).unwrap_or_else(|error| panic!("{error}"))
}
