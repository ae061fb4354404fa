//! ssh through the tunnel, and rsync over it.

use std::process::Stdio;

use super::{SERVER, World};
use crate::support::needs::path_of;
use crate::support::{assert_same, ssh};

#[test]
fn ssh_and_rsync_pass_with_packets_and_with_terminated_connections() {
    for more in [&[][..], &["--terminate", "all"]] {
        let name = if more.is_empty() { "ssh" } else { "ssh-term" };
        let Some(world) = World::new(name, 2, &[&ssh::PROGRAMS[..], &["cat", "ss"]].concat()) else { return };
        let (mut server, ticket) = world.serve(&[]);
        let mut client = world.litz(&world.client, &[&["up", &ticket], more].concat());
        client.wait_for("up");
        server.wait_for("client");
        let (of_server, of_client) = ssh::configure(&world.path(""));
        let sshd = path_of("sshd").expect("it was looked for").display().to_string();
        let _sshd = world.start(&sshd, &["-D", "-f", &of_server]);
        world.await_port(22);

        let sent = world.place.file("a/b", 3_000_000, 3);
        // Both directions at the same time, and the status of the far command.
        let mut command = World::in_namespace(&world.client, "ssh", &["-F", &of_client, SERVER[0], "cat; exit 7"]);
        let input = std::fs::File::open(&sent).expect("it was made");
        let output = command.stdin(Stdio::from(input)).output().expect("ssh starts");
        assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == std::fs::read(&sent).expect("a file"), "{} bytes", output.stdout.len());

        let shell = format!("ssh -F {of_client}");
        let far = format!("[{}]:{}", SERVER[1], world.path("far").display());
        for (from, to) in [
            (format!("{}/", world.path("out").display()), format!("{far}/")),
            (format!("{far}/"), format!("{}/", world.place.inbox().display())),
        ] {
            world.succeed("rsync", &["-a", "--timeout=60", "-e", &shell, &from, &to]);
        }
        assert_same(&sent, &world.place.inbox().join("a/b"));
        let (up, _) = World::end(client, server);
        if more.is_empty() {
            // Both files, each in one direction or both.
            assert!(up["in"]["bytes"].as_u64() > Some(5_000_000), "it went through the tunnel: {up}");
        }
    }
}
