//! The arguments of `litz send` that name a far host, `[USER@]HOST:PATH` as in scp and rsync.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path on a host that is reached by ssh.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FarPath {
    /// `[USER@]HOST`, as ssh takes it. Never an option of ssh.
    pub(crate) host: String,
    /// Absolute, or below the user's home directory there; empty for that directory itself.
    pub(crate) path: PathBuf,
}

/// The ends of a transfer, by the arguments of `litz send`.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Ends<'a> {
    /// The paths are sent to the host that printed the ticket.
    Ticket,
    /// The paths are sent into a directory of a far host.
    Push { paths: &'a [PathBuf], to: FarPath },
    /// Paths of a far host are received into a directory.
    Pull { host: String, paths: Vec<PathBuf>, into: &'a Path },
}

impl<'a> Ends<'a> {
    /// Finds the ends. `is_ticket` says that an option or the last argument is a ticket.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn of(arguments: &'a [PathBuf], is_ticket: bool) -> Result<Self, String> {
        let Some((last, first)) = arguments.split_last() else { return Ok(Self::Ticket) };
        let far = |argument: &PathBuf| FarPath::parse(argument.as_os_str());
        if is_ticket {
            // A colon in the name of a local file has no meaning here.
            return Ok(Self::Ticket);
        }
        let sources = first.iter().map(far).collect::<Result<Vec<_>, _>>()?;
        let far_count = sources.iter().flatten().count();
        match far(last)? {
            Some(_) if far_count > 0 => {
                Err("both ends are far hosts: run the command on one of them, and name its own files without a host"
                    .to_owned())
            }
            Some(_) if first.is_empty() => {
                Err("name the files to send and then where they go, as in `litz send FILE HOST:DIR`, or where \
                     the far host's files go, as in `litz send HOST:FILE DIR`"
                    .to_owned())
            }
            Some(to) => Ok(Self::Push { paths: first, to }),
            None if far_count == 0 => Ok(Self::Ticket),
            None if far_count < sources.len() => {
                Err("some of the files are on this host and some on a far one: fetch them with a command each"
                    .to_owned())
            }
            None => Self::pull(sources.into_iter().flatten(), last),
        }
    }

    fn pull(sources: impl Iterator<Item = FarPath>, into: &'a Path) -> Result<Self, String> {
        let mut host: Option<String> = None;
        let mut paths = Vec::new();
        for source in sources {
            if host.get_or_insert_with(|| source.host.clone()) != &source.host {
                return Err("the files are on several far hosts: fetch them with a command each".to_owned());
            }
            // The name is what the far host may store here, so it must be known before.
            if source.path.file_name().is_none() || source.path.as_os_str().as_bytes().ends_with(b"/.") {
                return Err(format!(
                    "{source} does not end in a name: name the directory itself, as in {}:/path/to/directory",
                    source.host
                ));
            }
            paths.push(source.path);
        }
        Ok(Self::Pull { host: host.unwrap_or_default(), paths, into })
    }
}

impl FarPath {
    /// Parses `[USER@]HOST:PATH`; `None` if the argument is a path of this host: it has no colon, a slash
    /// before it, or there is a file of that name.
    ///
    /// # Errors
    /// A message for the user if the host cannot be one.
    fn parse(argument: &OsStr) -> Result<Option<Self>, String> {
        let bytes = argument.as_bytes();
        let bracketed = split_brackets(bytes);
        let split = || {
            let colon = bytes.iter().position(|byte| *byte == b':')?;
            Some((bytes[..colon].to_vec(), &bytes[colon + 1..]))
        };
        let Some((host, path)) = bracketed.or_else(split) else { return Ok(None) };
        if host.is_empty() || host.contains(&b'/') || std::fs::symlink_metadata(argument).is_ok() {
            return Ok(None);
        }
        let host = std::str::from_utf8(&host).map_err(|_| "the name of a host is not text".to_owned())?;
        let host = checked_host(host)?;
        // What a shell would expand to the home directory, where the path begins anyway.
        let path = path.strip_prefix(b"~/").unwrap_or(path);
        if path.starts_with(b"~") {
            return Err(format!(
                "{} begins with ~: name a path below your home directory on {host} without it, and any other from \
                 its /",
                argument.display()
            ));
        }
        Ok(Some(Self { host, path: PathBuf::from(OsStr::from_bytes(path)) }))
    }
}

impl fmt::Display for FarPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.path.display())
    }
}

/// Splits `[USER@][ADDRESS]:PATH` into user and address, as ssh takes them, and path. In the brackets stands an
/// IPv6 address, whose colons do not count; anywhere else a bracket is part of a name.
fn split_brackets(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let open = match bytes.iter().position(|byte| matches!(byte, b'[' | b':' | b'/'))? {
        0 => 0,
        open if bytes[open - 1] == b'@' => open,
        _ => return None,
    };
    let rest = bytes[open..].strip_prefix(b"[")?;
    let close = rest.iter().position(|byte| matches!(byte, b'[' | b']' | b'/' | b'@'))?;
    let path = rest[close..].strip_prefix(b"]:")?;
    Some(([&bytes[..open], &rest[..close]].concat(), path))
}

/// A host that ssh takes neither for an option nor for several words.
fn checked_host(host: &str) -> Result<String, String> {
    let is_allowed = |character: char| character.is_alphanumeric() || "@._-:%+".contains(character);
    let name = host.rsplit_once('@').map_or(host, |(_, name)| name);
    if name.is_empty() || name.starts_with('-') || host.starts_with('-') || !host.chars().all(is_allowed) {
        return Err(format!(
            "{host:?} is not the name of a host: expected HOST or USER@HOST before the colon; for a file of this \
             host with a colon in its name, write ./ before it"
        ));
    }
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use units::Rng;

    use super::*;

    fn far(host: &str, path: &str) -> FarPath {
        FarPath { host: host.to_owned(), path: PathBuf::from(path) }
    }

    #[test]
    fn far_paths_are_told_from_local_ones() {
        for (text, expected) in [
            ("host:dir", Some(far("host", "dir"))),
            ("user@host:", Some(far("user@host", ""))),
            ("host:/abs/dir", Some(far("host", "/abs/dir"))),
            ("host:a:b", Some(far("host", "a:b"))),
            ("host:~/dir", Some(far("host", "dir"))),
            ("user@[2001:db8::1]:dir", Some(far("user@2001:db8::1", "dir"))),
            ("[fe80::1%eth0]:dir", Some(far("fe80::1%eth0", "dir"))),
            ("[host]:dir", Some(far("host", "dir"))),
            // A bracket elsewhere is part of a path.
            ("host:log[1]:x", Some(far("host", "log[1]:x"))),
            ("host:[a]:x", Some(far("host", "[a]:x"))),
            ("user@host:a@[b]:x", Some(far("user@host", "a@[b]:x"))),
            ("[::1]:[a]:x", Some(far("::1", "[a]:x"))),
            ("[a/b]:c", None),
            ("file", None),
            ("./a:b", None),
            ("/a:b", None),
            ("a/b:c", None),
            (":dir", None),
            ("-", None),
        ] {
            assert_eq!(FarPath::parse(OsStr::new(text)), Ok(expected), "{text}");
        }
    }

    /// An argument of random parts, most of them special ones.
    fn random_text(rng: &mut Rng, parts: &[&str], count: u64) -> String {
        (0..rng.below(count)).map(|_| parts[rng.below(parts.len() as u64) as usize]).collect()
    }

    #[test]
    fn an_argument_goes_to_the_host_that_it_begins_with() {
        let parts = ["a", "b1", "[", "]", "[1]", "]:", ":", "@", "/", "::1", "-", ".", "~", "%"];
        let (mut found, mut composed) = (0, 0);
        for seed in 0..20_000 {
            let mut rng = Rng::from_seed(seed);
            let text = random_text(&mut rng, &parts, 9);
            if let Ok(Some(place)) = FarPath::parse(OsStr::new(&text)) {
                let (user, name) = place.host.split_at(place.host.rfind('@').map_or(0, |at| at + 1));
                let path = place.path.to_str().unwrap();
                let forms = ["", "~/"]
                    .map(|home| [format!("{user}{name}:{home}{path}"), format!("{user}[{name}]:{home}{path}")]);
                assert!(forms.as_flattened().contains(&text), "seed {seed}: {text} -> {place:?}");
                found += 1;
            }
            // Whatever follows the colon is the path.
            let host =
                ["host", "user@host", "u.v-w@1.2.3.4", "[fe80::1%eth0]", "user@[2001:db8::1]"][rng.below(5) as usize];
            let path = random_text(&mut rng, &parts, 6);
            if !path.starts_with('~') {
                let expected = far(&host.replace(['[', ']'], ""), &path);
                assert_eq!(FarPath::parse(OsStr::new(&format!("{host}:{path}"))), Ok(Some(expected)), "seed {seed}");
                composed += 1;
            }
        }
        assert!(found > 100 && composed > 1000, "{found} found, {composed} composed");
    }

    #[test]
    fn a_host_becomes_neither_an_option_nor_text_of_a_shell() {
        for text in [
            "-oProxyCommand=x:dir",
            "u@-x:dir",
            "a b:dir",
            "$(x):dir",
            "a;b:dir",
            "u@:dir",
            "a\nb:dir",
            "`x`:d",
            "log[1]:x",
            "[a]b:c",
            "[log:x",
        ] {
            assert!(FarPath::parse(OsStr::new(text)).is_err(), "{text}");
        }
        assert!(FarPath::parse(OsStr::from_bytes(b"\xff:dir")).is_err());
        assert!(FarPath::parse(OsStr::new("host:~user/x")).is_err(), "nothing is expanded");
    }

    #[test]
    fn an_existing_file_with_a_colon_is_local() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a:b");
        std::fs::write(&file, "").unwrap();
        assert_eq!(FarPath::parse(file.as_os_str()), Ok(None));
    }

    #[test]
    fn the_ends_follow_from_the_arguments() {
        let paths = |texts: &[&str]| texts.iter().map(PathBuf::from).collect::<Vec<_>>();
        let push = paths(&["a", "b", "host:dir"]);
        assert_eq!(Ends::of(&push, false), Ok(Ends::Push { paths: &push[..2], to: far("host", "dir") }));
        assert_eq!(Ends::of(&push, true), Ok(Ends::Ticket));
        let pull = paths(&["host:a", "host:/b/c/", "dir"]);
        let expected = Ends::Pull { host: "host".to_owned(), paths: paths(&["a", "/b/c/"]), into: Path::new("dir") };
        assert_eq!(Ends::of(&pull, false), Ok(expected));
        assert_eq!(Ends::of(&paths(&["a", "b"]), false), Ok(Ends::Ticket));
        for (arguments, words) in [
            (&["host:a", "other:dir"][..], "both ends"),
            (&["host:a"], "name the files"),
            (&["host:a", "b", "dir"], "a command each"),
            (&["host:a", "other:b", "dir"], "several far hosts"),
            (&["host:", "dir"], "does not end in a name"),
            (&["host:a/..", "dir"], "does not end in a name"),
            (&["host:a/.", "dir"], "does not end in a name"),
            (&["host:/", "dir"], "does not end in a name"),
        ] {
            let error = Ends::of(&paths(arguments), false).expect_err(words);
            assert!(error.contains(words), "{arguments:?}: {error}");
        }
    }
}
