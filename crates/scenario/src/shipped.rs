//! The scenarios that programs ship with: the files in `scenarios/`.

/// A shipped scenario file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Name of the file without its extension, equal to that of the scenario.
    pub name: &'static str,
    /// The contents.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        [$(Shipped { name: $name, text: include_str!(concat!("../../../scenarios/", $name, ".toml")) }),*]
    };
}

/// All shipped scenarios, by name.
pub static SHIPPED: [Shipped; 18] = shipped![
    "backup",
    "bufferbloat",
    "bursty-wifi",
    "codel",
    "dropped-link",
    "emulator",
    "flapping",
    "four-equal",
    "four-unlike",
    "four-unlike-ordered",
    "gigabit",
    "leaving-wifi",
    "lte-trace",
    "messages-and-bulk",
    "reordering",
    "requests",
    "satellite-dsl",
    "two-equal",
];

/// Link traces that they name: path from the folder of the scenarios, and contents.
static TRACES: [(&str, &str); 1] = [("traces/lte.mahi", include_str!("../../../scenarios/traces/lte.mahi"))];

/// Returns the shipped scenario of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|shipped| shipped.name == name)
}

/// Returns the text of a link trace that a shipped scenario names.
#[must_use]
pub fn trace(name: &str) -> Option<&'static str> {
    TRACES.iter().find(|(path, _)| *path == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::parse::parse;

    /// Returns the files of a folder below `scenarios/`: name and contents.
    fn files(folder: &str) -> BTreeMap<String, String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(folder);
        let paths = folder.read_dir().expect("the folder").map(|entry| entry.expect("an entry").path());
        let read = |path: &Path| std::fs::read_to_string(path).expect("text");
        let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        paths.filter(|path| path.is_file()).map(|path| (name(&path), read(&path))).collect()
    }

    #[test]
    fn all_files_of_the_folders_are_shipped() {
        let shipped = SHIPPED.iter().map(|one| (format!("{}.toml", one.name), one.text.to_owned())).collect();
        assert_eq!(files(""), shipped);
        let traces = TRACES.iter().map(|(path, text)| (path.replace("traces/", ""), (*text).to_owned())).collect();
        assert_eq!(files("traces"), traces);
        assert!(SHIPPED.is_sorted_by_key(|shipped| shipped.name));
    }

    #[test]
    fn each_is_complete_and_named_as_its_file() {
        for shipped in &SHIPPED {
            let trace = |name: &str| trace(name).expect(name).parse().map_err(|_| name.to_owned());
            let scenario = parse(shipped.name, shipped.text, &trace).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(scenario.name, shipped.name);
            assert_eq!(find(shipped.name), Some(shipped));
        }
        assert_eq!((find("nothing"), super::trace("nothing")), (None, None));
    }
}
