//! The code in documents compiles, and the README's does what it says.

use std::path::{Path, PathBuf};

/// The README's example, whose halves run in separate processes, because they print and read like a
/// user's program.
#[expect(dead_code, clippy::print_stdout, reason = "a user's program, whose halves are called instead of `main`")]
mod readme {
    include!("documents/readme.rs");

    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use emulate::Namespace;

    /// Environment variable that selects the half for a process of this program: the arguments of
    /// the example.
    const HALF: &str = "LITZ_README_EXAMPLE";

    /// Kills the server if the test fails.
    struct Server(Child);

    impl Drop for Server {
        fn drop(&mut self) {
            let _ended = self.0.kill();
            let _status = self.0.wait();
        }
    }

    /// Runs the process of one half; not a test by itself.
    #[test]
    fn half() -> Done {
        let Ok(arguments) = std::env::var(HALF) else { return Ok(()) };
        match arguments.split_once(' ') {
            None => serve(),
            Some((address, server)) => ask(address, server.parse()?),
        }
    }

    /// Starts a half in the namespace, where no other program has its port.
    fn start(namespace: &Namespace, arguments: &str) -> Child {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace.name()]).arg(std::env::current_exe().unwrap());
        command.args(["documents::readme::half", "--exact", "--nocapture"]).env(HALF, arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
    }

    #[test]
    fn both_halves_of_the_readme_end_well() {
        if !rustix::process::geteuid().is_root() {
            // A namespace, in which the port is free, needs root.
            return;
        }
        let namespace = Namespace::create(&format!("litz-readme-{}", std::process::id())).unwrap();
        let mut server = Server(start(&namespace, ""));
        let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        // The harness also prints, on the same line.
        let word = |line: String| line.split(' ').find_map(|word| word.parse::<Fingerprint>().ok());
        let server_key = lines.find_map(word).expect("the server prints its fingerprint");
        let client = start(&namespace, &format!("127.0.0.1:4433 {server_key}")).wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&client.stdout);
        assert!(client.status.success() && printed.contains("hello\n"), "{printed}");
        assert!(server.0.wait().unwrap().success(), "{:?}", lines.collect::<Vec<_>>());
    }
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Collects all files below a folder with this ending, except for files outside the repository's
/// content.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        let is_foreign = ["target", "shared", "node_modules"].iter().any(|foreign| name == *foreign);
        if entry.file_type().unwrap().is_dir() && !is_foreign && !name.to_string_lossy().starts_with('.') {
            files(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

/// Returns the files that a source file includes for its documentation tests.
fn included(source: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(source).unwrap();
    if !text.contains("#[cfg(doctest)]") {
        return Vec::new();
    }
    let names = text.split("#[doc = include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next());
    names.map(|name| source.parent().unwrap().join(name).canonicalize().unwrap()).collect()
}

#[test]
fn all_rust_in_documents_is_compiled() {
    let (mut documents, mut sources) = (Vec::new(), Vec::new());
    files(&root(), ".md", &mut documents);
    files(&root().join("crates"), "lib.rs", &mut sources);
    let compiled: Vec<_> = sources.iter().flat_map(|source| included(source)).collect();
    let mut count = 0;
    for document in documents {
        let text = std::fs::read_to_string(&document).unwrap();
        for fence in text.lines().map(str::trim).filter(|line| line.starts_with("```rust")) {
            count += 1;
            assert!(["```rust", "```rust,no_run"].contains(&fence), "{}: {fence} is not compiled", document.display());
            assert!(compiled.contains(&document), "{}: no crate includes it in its doctests", document.display());
        }
    }
    assert!(count >= 8, "only {count} examples were found");
}

#[test]
fn the_example_of_the_readme_is_the_one_that_runs() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let code = include_str!("documents/readme.rs").split_once("\n\n").unwrap().1;
    assert!(readme.contains(&format!("```rust,no_run\n{code}```\n")), "copy tests/documents/readme.rs into README.md");
}
