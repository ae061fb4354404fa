//! What other commands of a host do beside a tunnel, and what the tunnel's own says without rights.

use std::process::Command;

use serde_json::Value;

use super::World;
use crate::support::Litz;

impl World {
    /// A command at a host that is no tunnel.
    fn other(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name, env!("CARGO_BIN_EXE_litz")]).args(arguments).arg("--json");
        command
    }

    /// `litz forward serve`: the command, its ticket, and the addresses in that.
    fn forward(&self, state: &str, arguments: &[&str]) -> (Litz, String, Vec<String>) {
        let state = format!("--state-dir={}", self.path(state).display());
        let mut server = self.other(&self.server, &["forward", "serve", "--target=127.0.0.1:*", &state]);
        let mut server = Litz::of(server.args(arguments));
        let listening = server.wait_for("listening");
        let addresses = listening["addresses"].as_array().expect("a list").iter();
        let addresses = addresses.filter_map(|address| address.as_str()?.rsplit_once(':')).map(|(ip, _)| ip.to_owned());
        (server, listening["ticket"].as_str().expect("a ticket").to_owned(), addresses.collect())
    }

    /// What `litz paths` says at the client, as a user without rights: the devices of the paths, and all.
    fn paths(&self, arguments: &[&str]) -> (Vec<String>, Value) {
        let litz = [&[env!("CARGO_BIN_EXE_litz"), "paths", "--json"], arguments].concat();
        let output = self.succeed("setpriv", &[&["--bounding-set=-all", "--inh-caps=-all"], &litz[..]].concat());
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let devices = answer["paths"].as_array().expect("a list").iter().filter_map(|path| path["device"].as_str());
        (devices.map(str::to_owned).collect(), answer)
    }
}

#[test]
fn other_commands_take_no_tunnel_for_a_further_link() {
    let Some(world) = World::new("further", 2, &["setpriv"]) else { return };
    let (client, server) = world.tunnel();
    let links = ["10.9.0.2", "10.9.1.2"].map(str::to_owned);

    let (_forward, ticket, addresses) = world.forward("forward", &[]);
    assert_eq!(addresses, links);
    assert_eq!(world.paths(&[&ticket]).0, ["c0", "c1"]);
    for named in [&["--listen=10.76.0.1:0"][..], &["--device=litz0"]] {
        let (_named, ticket, addresses) = world.forward("named", &[named, &["--new-ticket"]].concat());
        assert_eq!(addresses[0], "10.76.0.1", "{named:?}");
        // Nothing else leads there.
        assert_eq!(world.paths(&[&ticket]).0, ["litz0"]);
    }

    // A ticket that names the address in the tunnel, too.
    let all = ["10.9.0.2", "10.9.1.2", "10.76.0.1"].map(|address| format!("--advertise={address}"));
    let (_all, ticket, _) = world.forward("all", &all.each_ref().map(String::as_str));
    let (devices, answer) = world.paths(&[&ticket]);
    assert_eq!(devices, ["c0", "c1"]);
    let unused = answer["unused"].as_array().expect("a list").iter();
    let is_tunnel = |it: &&Value| it["device"] == "litz0" && it["reason"] == "tunnel";
    assert_eq!(unused.filter(is_tunnel).count(), 1, "{answer:#}");
    assert_eq!(answer["tried_last"].as_array().map(Vec::len), Some(1), "{answer:#}");
    assert_eq!(world.paths(&["--path=litz0", &ticket]).0, ["litz0"]);
    World::end(client, server);
}

#[test]
fn without_rights_the_advice_is_what_helps() {
    let Some(world) = World::new("rights", 1, &["setpriv"]) else { return };
    let (_server, ticket) = world.serve(&[]);
    for (arguments, words) in
        [(&["up", ticket.as_str()][..], "--userspace needs neither"), (&["serve"], "CAP_NET_ADMIN")]
    {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &world.client, "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]);
        command.args([env!("CARGO_BIN_EXE_litz"), "tunnel"]).args(arguments).arg("--json");
        command.arg(format!("--state-dir={}", world.path("state-rights").display()));
        command.env("RUNTIME_DIRECTORY", world.path("run-rights"));
        Litz::of(&mut command).fail(2, words);
    }
}

#[test]
fn arguments_that_cannot_be_are_refused_with_the_reason() {
    let Some(world) = World::new("arguments", 1, &[]) else { return };
    for (arguments, words) in [
        (&["--tun=lo"][..], "a device of another kind has this name"),
        (&["--tun=sixteen-letters-"], "at most 15 bytes"),
        (&["--expires=0", "--new-ticket"], "--expires must be more than 0"),
        (&["--client-rate=0"], "leave it out"),
    ] {
        world.litz(&world.server, &[&["serve"], arguments].concat()).fail(2, words);
    }
}
