//! An ssh server and a client for it, with keys of their own.

use std::path::Path;
use std::process::Command;

/// What the tests of ssh need.
pub const PROGRAMS: [&str; 4] = ["ssh", "sshd", "ssh-keygen", "rsync"];

/// Writes the keys and the configurations of both into a folder; the server listens on port 22. Returns the
/// paths of the server's configuration and of the client's.
pub fn configure(folder: &Path) -> (String, String) {
    let path = |name: &str| folder.join(name).to_str().expect("a plain path").to_owned();
    for name in ["host-key", "user-key"] {
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &path(name)]).status();
        assert!(made.expect("ssh-keygen starts").success());
    }
    // sshd wants it, and the package's service makes it.
    std::fs::create_dir_all("/run/sshd").expect("root");
    let server = format!(
        "Port 22\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
         PermitRootLogin yes\nUseDNS no\n",
        path("host-key"),
        path("user-key.pub")
    );
    let client = format!(
        "Host *\nIdentityFile {}\nIdentitiesOnly yes\nUser root\nBatchMode yes\nStrictHostKeyChecking no\n\
         UserKnownHostsFile /dev/null\nLogLevel ERROR\n",
        path("user-key")
    );
    for (name, text) in [("sshd_config", server), ("ssh_config", client)] {
        std::fs::write(path(name), text).expect("a file");
    }
    (path("sshd_config"), path("ssh_config"))
}
