//! A failure on a client's own host comes before its server has bound the ticket, and one on a
//! server's host before it revokes a ticket.

use std::process::Command;

use super::{World, ip};
use crate::support::Litz;

#[test]
fn a_client_whose_host_cannot_have_the_tunnel_leaves_the_ticket_to_another_one() {
    let Some(world) = World::new("local", 1, &["mount", "nft"]) else { return };
    let (server, ticket) = world.serve(&["--dns=10.76.0.1"]);
    for (break_it, options, words) in [
        ("mount -t tmpfs none /dev/net", &[][..], "give the device to a container"),
        ("mount -t tmpfs none /dev/net", &["--all", "--kill-switch"], "--userspace needs no device"),
        (
            "mount -t tmpfs none /etc; ln -s ../run/nowhere/file /etc/resolv.conf",
            &["--dns"],
            "is a link to ../run/nowhere/file, whose folder does not exist",
        ),
        ("true", &["--userspace", "--gateway", "--dynamic=203.0.113.1:1080"], "203.0.113.1"),
    ] {
        let state = format!("--state-dir={}", world.path("state-true").display());
        let mut command = Command::new("ip");
        // The mounts are those of this command.
        let script = format!("{break_it}; exec \"$@\"");
        command.args(["netns", "exec", &world.client, "sh", "-e", "-c", &script, "sh", env!("CARGO_BIN_EXE_litz")]);
        command.args(["tunnel", "up", &state, "--json", &ticket]).args(options);
        Litz::of(command.env("RUNTIME_DIRECTORY", world.path("run-true"))).fail(2, words);
    }
    let state = format!("--state-dir={}", world.path("state-other").display());
    let mut client = Litz::of(world.command(&world.client).args(["up", &state, "--json", &ticket]));
    client.wait_for("up");
    World::end(client, server);
}

#[test]
fn a_server_whose_host_cannot_have_the_tunnel_leaves_the_earlier_ticket_as_it_was() {
    let Some(world) = World::new("revoked", 1, &[]) else { return };
    let (mut server, ticket) = world.serve(&[]);
    server.kill();
    // A device of that name is there.
    ip(&format!("-n {} link add litz0 type veth peer name other", world.server));
    world.litz(&world.server, &["serve", "--new-ticket"]).fail(2, "litz0");
    ip(&format!("-n {} link del litz0", world.server));
    let (server, again) = world.serve(&[]);
    assert_eq!(again, ticket);
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("up");
    World::end(client, server);
}
