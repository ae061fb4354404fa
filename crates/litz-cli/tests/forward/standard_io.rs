//! `--stdio`, also as the connection of ssh.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::*;
use crate::support::needs::{has_programs, has_root};

fn stdio(place: &Place, ticket: &str, target: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    command.args(["forward", "--state-dir"]).arg(place.path("state-out")).args(["--stdio", target, ticket]);
    command
}

fn run(mut command: Command, input: &[u8]) -> (i32, Vec<u8>, String) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_owned();
    let writing = std::thread::spawn(move || {
        // The command may end before it has read everything.
        let _broken = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it ends");
    writing.join().expect("no panic");
    (output.status.code().unwrap_or(-1), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn standard_input_and_output_are_a_connection() {
    let target = late_echo();
    let place = Place::new();
    let closed = free_port();
    let refused = format!("127.0.0.1:{closed}");
    let rules = ["--target".to_owned(), target.to_string(), "--target".to_owned(), refused.clone()];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let (_server, ticket) = serve_at(&place, "127.0.0.1:0", &rules);
    let bytes = random(3_000_000, 1);
    let (status, output, errors) = run(stdio(&place, &ticket, &target.to_string()), &bytes);
    assert!(status == 0 && output == bytes, "{status} {} {errors}", output.len());
    let (status, output, errors) = run(stdio(&place, &ticket, &refused), b"");
    assert!(status == 1 && output.is_empty() && errors.contains("refused"), "{status} {errors}");
    let (status, output, errors) = run(stdio(&place, &ticket, "127.0.0.1:1"), b"");
    assert!(status == 1 && output.is_empty() && errors.contains("does not allow"), "{status} {errors}");
}

#[test]
fn ssh_uses_the_command_as_its_connection() {
    if !has_root() || !has_programs(&["ssh", "sshd", "ssh-keygen"]) {
        return;
    }
    let place = Place::new();
    let path = |name: &str| place.path(name).to_str().expect("a plain path").to_owned();
    for name in ["host-key", "user-key"] {
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &path(name)]).status();
        assert!(made.expect("it runs").success());
    }
    std::fs::copy(place.path("user-key.pub"), place.path("authorized")).expect("a file");
    // sshd wants it, and the package's service makes it.
    std::fs::create_dir_all("/run/sshd").expect("root");
    let port = free_port();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
         PidFile none\nPermitRootLogin yes\nUseDNS no\n",
        path("host-key"),
        path("authorized")
    );
    std::fs::write(place.path("sshd_config"), config).expect("a file");
    let sshd = Command::new("/usr/sbin/sshd").args(["-D", "-f", &path("sshd_config")]).spawn().expect("it starts");
    let _sshd = Kill(sshd);
    let (_server, ticket) = serve_at(&place, "127.0.0.1:0", &[&format!("--target=localhost:{port}")]);
    let proxy = format!(
        "#!/bin/sh\nexec {} forward --state-dir {} --ticket-file {} --stdio $1:$2\n",
        env!("CARGO_BIN_EXE_litz"),
        path("state-out"),
        path("ticket")
    );
    std::fs::write(place.path("ticket"), ticket).expect("a file");
    std::fs::write(place.path("proxy"), proxy).expect("a file");
    std::fs::set_permissions(place.path("proxy"), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let proxy = format!("ProxyCommand={} %h %p", path("proxy"));
    let bytes = random(2_000_001, 2);
    // The server may not listen yet.
    let mut last = String::new();
    let is_echoed = (0..50).any(|_| {
        let mut ssh = Command::new("ssh");
        ssh.args(["-F", "/dev/null", "-i", &path("user-key"), "-p", &port.to_string()]);
        ssh.args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"]);
        ssh.args(["-o", "IdentitiesOnly=yes", "-o", "LogLevel=ERROR", "-o", &proxy, "root@localhost", "cat"]);
        let (status, output, errors) = run(ssh, &bytes);
        last = errors;
        status == 0 && output == bytes
    });
    assert!(is_echoed, "{last}");
}

/// Ends a process when the test does.
struct Kill(std::process::Child);

impl Drop for Kill {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}
