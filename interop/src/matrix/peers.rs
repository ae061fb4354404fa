//! The peers: how their programs are built and started, and what they cannot do.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::run::Role;

/// An implementation with a program in `peers/`.
pub struct Peer {
    /// Its name, and that of its folder.
    pub name: &'static str,
    /// The file that pins its version, and what stands before the version there.
    version_in: (&'static str, &'static str),
    /// Commands that build it, in its folder; `{out}` is the folder for what they make.
    build: &'static [&'static [&'static str]],
    /// How its program is started.
    start: &'static [&'static str],
    /// It takes part in the quick run, which CI does.
    pub is_quick: bool,
    /// What it cannot do: the case, the role of Litz (none for both), and the reason.
    lacks: &'static [(&'static str, Option<Role>, &'static str)],
    /// Cases of the quick run that it now and then fails: the case, the role of Litz, and why.
    not_quick: &'static [(&'static str, Role, &'static str)],
    /// A long transfer has this share of the usual length, for peers that would take minutes.
    pub share: u64,
}

/// Why a program has no HTTP/3.
const HTTP3_ONCE: &str = "HTTP/3 is tried with one implementation, that of quic-go";

const NGTCP2_DRAFT_2: &str = "ngtcp2 0.12.1 has version 2 as in a draft, with another number than that of RFC 9369";

const ONE_VERSION: &str = "it has version 1 alone";

/// Seen with a client of quiche behind a NAT that rebinds, too.
const QUICHE_STALLS: &str = "servers of quiche stall when datagrams to the client's old address are lost, \
    with clients of quiche as well; a client of Litz drops what comes there after it has moved";

/// All peers, in the order of the table.
pub const PEERS: &[Peer] = &[
    Peer {
        name: "aioquic",
        version_in: ("requirements.txt", "aioquic=="),
        build: &[
            &["python3", "-m", "venv", "{out}"],
            &[
                "{out}/bin/pip",
                "install",
                "--quiet",
                "--no-deps",
                "--disable-pip-version-check",
                "-r",
                "requirements.txt",
            ],
        ],
        start: &["{out}/bin/python", "{folder}/peer.py"],
        is_quick: true,
        lacks: &[
            ("reset", None, "aioquic neither sends stateless resets nor recognises them"),
            (
                "key-update-theirs",
                Some(Role::Client),
                "aioquic updates keys only when the application asks, and its server protocol has no such request",
            ),
            ("http3", None, HTTP3_ONCE),
            ("ecn", None, "aioquic does not read ECN marks and reports none"),
        ],
        not_quick: &[],
        share: 1,
    },
    Peer {
        name: "quic-go",
        version_in: ("go.mod", "github.com/quic-go/quic-go v"),
        build: &[&["go", "build", "-o", "{out}/peer", "."]],
        start: &["{out}/peer"],
        is_quick: true,
        lacks: &[("upgrade", None, "quic-go has no compatible version negotiation")],
        not_quick: &[(
            "reset",
            Role::Client,
            "after one of fifty restarts its server reads the packets and sends no reset",
        )],
        share: 1,
    },
    Peer {
        name: "s2n-quic",
        version_in: ("Cargo.toml", "s2n-quic ="),
        build: &[&["cargo", "build", "--release", "--quiet", "--locked", "--target-dir", "{out}"]],
        start: &["{out}/release/litz-interop-s2n-quic"],
        is_quick: false,
        lacks: &[
            ("version-2", None, ONE_VERSION),
            ("upgrade", None, ONE_VERSION),
            ("early", None, "s2n-quic has no 0-RTT"),
            ("resumption", None, "s2n-quic resumes sessions only with a feature that it calls unstable"),
            ("key-update-theirs", None, "s2n-quic updates keys only near the limit of the cipher, not on request"),
            ("http3", None, HTTP3_ONCE),
            ("migration", Some(Role::Server), "clients of s2n-quic cannot migrate"),
            ("migration-dead", Some(Role::Server), "clients of s2n-quic cannot migrate"),
        ],
        not_quick: &[],
        share: 1,
    },
    Peer {
        name: "quiche",
        version_in: ("Cargo.toml", "quiche ="),
        build: &[&["cargo", "build", "--release", "--quiet", "--locked", "--target-dir", "{out}"]],
        start: &["{out}/release/litz-interop-quiche"],
        is_quick: false,
        lacks: &[
            ("version-2", None, ONE_VERSION),
            ("upgrade", None, ONE_VERSION),
            ("reset", Some(Role::Client), "quiche leaves the sending of stateless resets to its application"),
            ("migration", Some(Role::Client), QUICHE_STALLS),
            ("migration-dead", Some(Role::Client), QUICHE_STALLS),
            ("rebinding", Some(Role::Client), QUICHE_STALLS),
            ("key-update-theirs", None, "quiche follows key updates, and begins none"),
            ("ecn", None, "quiche has no ECN"),
            ("http3", None, HTTP3_ONCE),
        ],
        not_quick: &[],
        share: 1,
    },
    Peer {
        name: "ngtcp2",
        version_in: ("peer.h", "ngtcp2 "),
        build: &[&["make", "--quiet", "OUT={out}"]],
        start: &["{out}/peer"],
        is_quick: false,
        lacks: &[("version-2", None, NGTCP2_DRAFT_2), ("upgrade", None, NGTCP2_DRAFT_2), ("http3", None, HTTP3_ONCE)],
        not_quick: &[],
        share: 1,
    },
];

/// The folders that a peer's program is made of.
pub struct Built {
    /// The command that starts it, before its arguments.
    pub command: Vec<String>,
    /// Its version.
    pub version: String,
}

impl Peer {
    /// Builds its program below `target`, from the folders in `peers`.
    ///
    /// # Errors
    /// Why it cannot be built.
    pub fn build(&self, peers: &Path, target: &Path) -> Result<Built, String> {
        let folder = peers.join(self.name);
        let out = target.join(self.name);
        std::fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
        let fill = |words: &[&str]| -> Vec<String> {
            let path = |path: &PathBuf| path.display().to_string();
            words.iter().map(|word| word.replace("{out}", &path(&out)).replace("{folder}", &path(&folder))).collect()
        };
        for command in self.build {
            let words = fill(command);
            let made = Command::new(&words[0]).args(&words[1..]).current_dir(&folder).output();
            let made = made.map_err(|error| format!("{}: {error}", words[0]))?;
            if !made.status.success() {
                let errors = String::from_utf8_lossy(&made.stderr);
                let last: Vec<&str> = errors.lines().rev().take(5).collect();
                let last = last.into_iter().rev().collect::<Vec<_>>().join(" / ");
                return Err(format!("`{}` failed: {last}", command.join(" ")));
            }
        }
        Ok(Built { command: fill(self.start), version: self.version(&folder)? })
    }

    fn version(&self, folder: &Path) -> Result<String, String> {
        let (file, before) = self.version_in;
        let text = std::fs::read_to_string(folder.join(file)).map_err(|error| format!("{file}: {error}"))?;
        let found = text.split_once(before).map(|(_, after)| after.trim_start_matches(['"', '=', 'v', ' ']));
        let is_version = |at: char| at.is_ascii_digit() || at == '.';
        let version = found.map(|after| after.split(|at| !is_version(at)).next().unwrap_or_default().to_owned());
        version.filter(|version| !version.is_empty()).ok_or_else(|| format!("no version of {} in {file}", self.name))
    }

    /// Whether a case is left to the full run, which people look at.
    pub fn is_left_out_of_quick(&self, case: &str, ours: Role) -> bool {
        self.not_quick.iter().any(|(name, role, _)| *name == case && *role == ours)
    }

    /// Why it cannot do a case, if so.
    pub fn lacks(&self, case: &str, ours: Role) -> Option<&'static str> {
        let fits = |role: &Option<Role>| role.is_none_or(|role| role == ours);
        self.lacks.iter().find(|(name, role, _)| *name == case && fits(role)).map(|(_, _, reason)| *reason)
    }
}
