//! ssh, with the command as its connection, and rsync over it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::forward::Forwarder;
use super::world::{Place, REMOTE, Server, World, assert_same, device_options, faulty, stack_addresses, with_port};
use crate::support::ssh::{PROGRAMS, configure};

/// An ssh server in each namespace, and a client's configuration; returns its path.
fn ssh(world: &World) -> (Vec<Server>, String) {
    let (config, client) = configure(&world.path(""));
    let servers = [Place::Host, Place::Remote]
        .map(|place| world.serve(place, "sshd", &["-D", "-f", &config], &with_port("127.0.0.1", 22)));
    (servers.into(), client)
}

/// A folder of files of all sizes; returns the names and contents.
fn tree(world: &World, folder: &str) -> Vec<(String, Vec<u8>)> {
    let sizes = [0, 1, 700, 1448, 65_536, 100_000, 900_001];
    let file = |(number, size): (usize, usize)| {
        let name = format!("d{}/f{number}", number % 3);
        let bytes = world.file(&format!("{folder}/{name}"), size);
        (name, bytes)
    };
    sizes.into_iter().enumerate().map(file).collect()
}

fn assert_tree(folder: &Path, tree: &[(String, Vec<u8>)], context: &str) {
    for (name, bytes) in tree {
        let copy = std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{context}: {name}: {error}"));
        assert_same(&copy, bytes, &format!("{context}: {name}"));
    }
}

/// Copies the tree there and back with `shell`.
fn rsync(world: &World, place: Place, shell: &str, host: &str, name: &str, tree: &[(String, Vec<u8>)]) {
    let path = |name: &str| world.path(name).to_str().expect("a plain path").to_owned();
    let there = format!("{host}:{}/", path(&format!("there-{name}")));
    world.succeed(place, "rsync", &["-a", "-e", shell, &format!("{}/", path("tree")), &there], &[]);
    assert_tree(&world.path(&format!("there-{name}")), tree, "there");
    world.succeed(place, "rsync", &["-az", "-e", shell, &there, &path(&format!("back-{name}"))], &[]);
    assert_tree(&world.path(&format!("back-{name}")), tree, "back");
}

#[test]
fn ssh_and_rsync_use_the_command_as_their_connection() {
    for (seed, congestion) in [(21, "cubic"), (22, "bbr")] {
        let Some(world) = World::new(&PROGRAMS, seed, &faulty(5, 10, 5), congestion) else { return };
        let (_servers, config) = ssh(&world);
        // ssh takes no address of IPv6 in place of %h without brackets.
        let remote = with_port(REMOTE[seed as usize % 2], 22);
        let litz = format!("{} tcp connect {remote} {}", env!("CARGO_BIN_EXE_litz"), device_options(1).join(" "));
        let proxy = world.text("proxy", &format!("#!/bin/sh\nexec {litz}\n"));
        std::fs::set_permissions(&proxy, std::fs::Permissions::from_mode(0o755)).expect("ours");
        let option = format!("ProxyCommand={}", proxy.display());
        let bytes = world.file("piped", 2_000_001);
        let arguments = ["-F", &config, "-o", &option, "remote", "cat"];
        let echoed = world.succeed(Place::Host, "ssh", &arguments, &bytes);
        assert_same(&echoed, &bytes, congestion);
        let files = tree(&world, "tree");
        rsync(&world, Place::Host, &format!("ssh -F {config} -o {option}"), "remote", "command", &files);
    }
}

#[test]
fn ssh_and_rsync_reach_a_server_behind_the_stack_and_one_before_it() {
    let Some(world) = World::new(&PROGRAMS, 23, &faulty(5, 10, 5), "cubic") else { return };
    let (_servers, config) = ssh(&world);
    let forwarder = Forwarder::start(&world, 1, 22, with_port(REMOTE[0], 22).parse().expect("an address"));
    let files = tree(&world, "tree");
    let stack = stack_addresses(1)[0].to_string();
    let shell = format!("ssh -F {config}");
    rsync(&world, Place::Remote, &shell, &stack, "accepts", &files);
    let shell = format!("ssh -F {config} -p {}", forwarder.kernel_port);
    rsync(&world, Place::Host, &shell, "127.0.0.1", "connects", &files);
}
