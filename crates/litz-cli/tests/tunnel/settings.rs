//! Files with options and clients, name servers, and rates.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use litz::identity::PublicKey;
use serde_json::{Value, json};

use super::stream::Stream;
use super::{SEND_FROM, SERVER, World, ip};
use crate::support::Litz;

impl World {
    /// A file that only its owner may read.
    fn settings(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        path
    }

    fn up(&self, settings: &Path) -> (Litz, Value) {
        let mut client = self.litz(&self.client, &["up", settings.to_str().expect("text")]);
        let up = client.wait_for("up");
        (client, up)
    }
}

#[test]
fn a_file_has_the_options_of_each_end_and_what_each_client_may_use() {
    let Some(world) = World::new("file", 1, &["python3", "iperf3", "ss"]) else { return };
    let names = Names::of(&world.client);
    let key = World::key_in(&format!("--state-dir={}", world.path("state-true").display()));
    let settings = format!(
        "dns = ['{}']\nmtu = 1300\n\n[[client]]\nkey = '{key}'\nlabel = 'laptop'\naddress = ['10.76.0.9', 'fd76:6c69:747a::9']\n\
         network = ['10.50.0.0/24']\nrate = '20Mb/s'\n",
        SERVER[0]
    );
    let (mut server, ticket) = world.serve(&[world.settings("serve.toml", &settings).to_str().expect("text")]);
    let file = world.settings("up.toml", &format!("ticket = '{ticket}'\nby-key = true\ndns = true\n"));
    let (mut client, up) = world.up(&file);
    assert_eq!((&up["addresses"], &up["mtu"]), (&json!(["10.76.0.9/24", "fd76:6c69:747a::9/64"]), &json!(1300)));
    server.wait_for("client");
    let status = world.status_of(&world.server);
    let fingerprint = key.parse::<PublicKey>().expect("a key").fingerprint().to_string();
    let shown = &status["peers"][0];
    assert_eq!((&shown["key"], &shown["label"]), (&json!(fingerprint), &json!("laptop")), "{status}");
    for name in ["refused", "malformed", "clients_refused"] {
        assert_eq!(status["counters"][name], 0, "{status}");
    }

    // Of root's privileges only those for the network are left, in all threads.
    for process in [&client, &server] {
        let tasks = fs::read_dir(format!("/proc/{}/task", process.id())).expect("it runs");
        for task in tasks.flatten() {
            let status = fs::read_to_string(task.path().join("status")).expect("a status");
            let kept = status.lines().filter(|line| line.starts_with("CapEff:") || line.starts_with("CapBnd:"));
            assert!(kept.clone().count() == 2 && kept.clone().all(|line| line.ends_with("00003400")), "{status}");
        }
    }

    // A network behind the client.
    ip(&format!("-n {} addr add 10.50.0.1/32 dev lo", world.client));
    let seen = world.path("seen").display().to_string();
    let mut listener = world.listener(&seen);
    world.succeed("python3", &["-c", SEND_FROM, "10.50.0.1", SERVER[0], "behind"]);
    world.succeed("python3", &["-c", SEND_FROM, "10.76.0.9", SERVER[0], "end"]);
    assert!(listener.0.wait().expect("it was started").success());
    assert_eq!(fs::read_to_string(&seen).expect("a file"), "behind 10.50.0.1\nend 10.76.0.9");

    // Both directions keep to the rate, whatever the load of this host.
    for direction in [&[][..], &["-R"]] {
        let report = world.iperf(&[&["-c", SERVER[0], "-n", "2M"], direction].concat());
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
        let rate = rate.unwrap_or_else(|| panic!("no rate: {report}"));
        assert!(rate < 25e6, "{direction:?}: {rate}");
    }

    assert_eq!(names.servers(), ["10.76.0.1"]);
    client.kill();
    world.down();
    assert_eq!(names.servers(), ["192.0.2.53"]);
    assert_eq!(server.wait_for("gone")["peer"]["out"]["over_rate"], 0);

    // A client that is not listed.
    let stranger = world.settings("other.toml", &settings.replace(&key, &format!("ed25519:{}", "a".repeat(52))));
    server.kill();
    let (_server, ticket) = world.serve(&[stranger.to_str().expect("text")]);
    let file = world.settings("up.toml", &format!("ticket = '{ticket}'\nby-key = true\n"));
    world.litz(&world.client, &["up", file.to_str().expect("text")]).fail(2, "refused");
}

/// The file of name servers of a namespace, in a folder that is removed at the end.
struct Names(PathBuf);

impl Names {
    /// With one server, 192.0.2.53.
    fn of(namespace: &str) -> Self {
        let names = Self(Path::new("/etc/netns").join(namespace));
        fs::create_dir_all(&names.0).expect("a folder");
        fs::write(names.file(), "nameserver 192.0.2.53\n").expect("a file");
        names
    }

    fn file(&self) -> PathBuf {
        self.0.join("resolv.conf")
    }

    /// The servers that it names now.
    fn servers(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file()).expect("a file");
        text.lines().filter_map(|line| line.strip_prefix("nameserver ").map(str::to_owned)).collect()
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn routes_and_name_servers_of_a_server_that_is_started_again_replace_those_before() {
    let Some(world) = World::new("replaced", 1, &["python3", "ss"]) else { return };
    let names = Names::of(&world.client);
    let _echo = world.echo();
    let networks = ["192.168.7.0/24", "192.168.8.0/24", "192.168.9.0/24"];
    let routes = networks.map(|network| format!("--route={network}"));
    let is_routed = |network: &str| {
        let shown = World::in_namespace(&world.client, "ip", &["route", "show", network]).output().expect("ip");
        String::from_utf8_lossy(&shown.stdout).contains("dev litz0")
    };
    let (mut server, ticket) = world.serve(&[&routes[0], &routes[1], "--dns=192.168.7.53"]);
    let mut client = world.litz(&world.client, &["up", "--dns", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    assert_eq!((networks.map(is_routed), names.servers()), ([true, true, false], vec!["192.168.7.53".to_owned()]));
    let mut stream = Stream::start(&world, SERVER[0]);
    stream.await_progress(10);

    server.kill();
    server = world.serve(&[&routes[1], &routes[2], "--dns=192.168.9.53"]).0;
    client.wait_for("retrying");
    assert_eq!(client.wait_for("up")["routes"], json!(networks[1..]));
    server.wait_for("client");
    assert_eq!((networks.map(is_routed), names.servers()), ([false, true, true], vec!["192.168.9.53".to_owned()]));
    stream.await_progress(10);
    stream.finish();
    // A network manager writes those of a new network.
    fs::write(names.file(), "nameserver 198.51.100.53\n").expect("a file");
    while names.servers() != ["192.168.9.53"] {
        std::thread::yield_now();
    }
    World::end(client, server);
    assert_eq!(names.servers(), ["198.51.100.53"], "the newest of others");
}

#[test]
fn a_client_whose_own_address_is_in_a_network_behind_it_is_refused_and_counted() {
    let Some(world) = World::new("loop", 1, &[]) else { return };
    let key = World::key_in(&format!("--state-dir={}", world.path("state-true").display()));
    let file = world.settings("serve.toml", &format!("[[client]]\nkey = '{key}'\nnetwork = '10.9.0.0/25'\n"));
    let (mut server, ticket) = world.serve(&[file.to_str().expect("text")]);
    let mut client = world.litz(&world.client, &["up", "--by-key", &ticket]);
    client.fail(2, "10.9.0.1, from which it connects, is in the network 10.9.0.0/25 behind it");
    let ended = server.wait_for("ended");
    assert!(ended["message"].as_str().is_some_and(|message| message.contains("10.9.0.0/25 behind it")), "{ended}");
    assert_eq!(world.status_of(&world.server)["counters"]["clients_refused"], 1);
}

#[test]
fn a_client_of_the_pool_gives_up_an_address_that_is_listed_for_another_one() {
    let Some(world) = World::new("listed", 1, &[]) else { return };
    let states = ["state-true", "state-other"].map(|state| format!("--state-dir={}", world.path(state).display()));
    let keys = states.each_ref().map(|state| World::key_in(state));
    let list = |address: &str| {
        let text = format!("[[client]]\nkey = '{}'\n\n[[client]]\nkey = '{}'\n{address}", keys[0], keys[1]);
        // The server reads it at any time: it must be whole.
        fs::rename(world.settings("new.toml", &text), world.path("serve.toml")).expect("it was written");
    };
    list("");
    let (mut server, ticket) = world.serve(&[world.path("serve.toml").to_str().expect("text")]);
    let mut client = world.litz(&world.client, &["up", "--by-key", &ticket]);
    assert_eq!(client.wait_for("up")["addresses"][0], "10.76.0.2/24");
    server.wait_for("client");

    list("address = '10.76.0.2'\n");
    let mut command = world.command(&world.client);
    let mut other = Litz::of(command.args(["up", "--by-key", "--tun=litz1", "--json", &states[1], &ticket]));
    assert_eq!(other.wait_for("up")["addresses"], json!(["10.76.0.2/24"]));
    client.wait_for("retrying");
    assert_eq!(client.wait_for("up")["addresses"][0], "10.76.0.3/24");
    // The first client, the other one, and the first one again. No other change follows.
    server.wait_for("client");
    server.wait_for("client");
    World::end(client, server);
    assert_eq!(other.seen.iter().filter(|event| event["event"] == "down").count(), 0, "{:#?}", other.seen);
}

#[test]
fn errors_of_a_file_name_its_line_and_a_ticket_in_it_is_a_secret() {
    let Some(world) = World::new("badfile", 0, &[]) else { return };
    for (name, text, words) in [
        ("unknown.toml", "all = true\nkillswitch = true\n", "line 2: `killswitch` is no option"),
        ("value.toml", "mtu = 12\n", "line 1: "),
        ("syntax.toml", "all = true\n\nall", "line 3: "),
    ] {
        let file = world.settings(name, text);
        world.litz(&world.client, &["up", file.to_str().expect("text")]).fail(2, words);
    }
    let file = world.settings("open.toml", "ticket = 'litz1abc'\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("a mode");
    world.litz(&world.client, &["up", file.to_str().expect("text")]).fail(2, "chmod go-r");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("a mode");
    world.litz(&world.client, &["up", file.to_str().expect("text")]).fail(2, "chmod go-w");
}

#[test]
fn a_server_refuses_clients_that_would_take_its_own_packets_and_addresses_without_space_for_clients() {
    let Some(world) = World::new("own", 1, &[]) else { return };
    let key = format!("ed25519:{}", "a".repeat(52));
    for (client, words) in [
        ("network = ['192.168.9.0/24', '0.0.0.0/0']", "serve.toml, line 3: \"0.0.0.0/0\" is a large part"),
        (
            "network = ['10.0.0.0/8']",
            "serve.toml, line 3: \"10.0.0.0/8\" has addresses of the server's network 10.76.0.0/24",
        ),
        ("address = ['10.76.0.1']", "serve.toml, line 3: \"10.76.0.1\" is the server's own address"),
        ("address = ['10.9.9.9']", "serve.toml, line 3: \"10.9.9.9\" is outside the server's networks"),
        ("\nnetwork = ['10.9.0.0/24']", "serve.toml, line 4: this host has another route to 10.9.0.0/24"),
    ] {
        let file = world.settings("serve.toml", &format!("[[client]]\nkey = '{key}'\n{client}\n"));
        world.litz(&world.server, &["serve", file.to_str().expect("text")]).fail(2, words);
    }
    for (addresses, words) in [
        (&["10.0.0.1"][..], "the network 10.0.0.1/32 has no address for a client"),
        (&["10.0.0.0/24"], "10.0.0.0 is the address of the network"),
        (&["10.76.0.2/31", "fd76::1/64"], "no client could have an address"),
        (&["10.76.0.1/24", "10.76.0.1/24"], "have addresses in common"),
    ] {
        let addresses: Vec<String> = addresses.iter().map(|address| format!("--address={address}")).collect();
        let arguments: Vec<&str> = ["serve"].into_iter().chain(addresses.iter().map(String::as_str)).collect();
        world.litz(&world.server, &arguments).fail(2, words);
    }
}

/// Runs a command where systemd-resolved seems to run: FOLDER COMMAND... A program in FOLDER stands for
/// `resolvectl` and notes how it is called.
const WITH_RESOLVED: &str = r#"
mount -t tmpfs none /run
mkdir -p /run/systemd/resolve
touch /run/systemd/resolve/io.systemd.Resolve
folder=$1; shift
printf '#!/bin/sh\necho "$*" >> %s/calls\n' "$folder" > "$folder/resolvectl"
chmod +x "$folder/resolvectl"
PATH="$folder:$PATH" exec "$@"
"#;

#[test]
fn systemd_resolved_is_told_of_the_name_servers() {
    let Some(world) = World::new("resolved", 1, &["mount"]) else { return };
    let (mut server, ticket) = world.serve(&["--dns", "10.76.0.1", "--dns", "fd76:6c69:747a::1"]);
    let folder = world.path("resolved");
    fs::create_dir(&folder).expect("a folder");
    let resolv_conf = fs::read_to_string("/etc/resolv.conf").ok();
    // The namespace of mounts is the command's own.
    let mut command = std::process::Command::new("ip");
    command.args(["netns", "exec", &world.client, "sh", "-e", "-c", WITH_RESOLVED, "sh"]);
    command.arg(&folder).arg(env!("CARGO_BIN_EXE_litz")).args(["tunnel", "up", "--dns", "--json", &ticket]);
    command.arg(format!("--state-dir={}", world.path("state-true").display()));
    command.env("RUNTIME_DIRECTORY", world.path("run-true"));
    let mut client = Litz::of(&mut command);
    client.wait_for("up");
    server.wait_for("client");
    let calls = fs::read_to_string(folder.join("calls")).expect("it was called");
    assert_eq!(calls, "dns litz0 10.76.0.1 fd76:6c69:747a::1\ndomain litz0 ~.\n");
    World::end(client, server);
    assert_eq!(fs::read_to_string("/etc/resolv.conf").ok(), resolv_conf);
}

#[test]
fn a_server_listens_on_the_addresses_that_are_named() {
    let Some(world) = World::new("listen", 3, &[]) else { return };
    let file = world.settings("serve.toml", "listen = ['10.9.0.2:4433', '10.9.2.2']\n");
    let (mut server, ticket) = world.serve(&[file.to_str().expect("text")]);
    let listening = server.seen.iter().find(|event| event["event"] == "listening").expect("it was waited for");
    assert_eq!(listening["addresses"], json!(["10.9.0.2:4433", "10.9.2.2:4433"]));
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    world.await_paths(2);
    let (sent, _) = World::end(client, server);
    let remotes = sent["paths"].as_array().expect("a list").iter().map(|path| path["remote"].clone());
    let remotes: std::collections::BTreeSet<_> = remotes.map(|remote| remote.to_string()).collect();
    assert_eq!(remotes, ["\"10.9.0.2:4433\"", "\"10.9.2.2:4433\""].map(str::to_owned).into());
    for (first, words) in [(":4433", "each must name an address"), ("10.9.0.2:4434", "different ports")] {
        let arguments = ["serve", "--listen", first, "--listen", "10.9.2.2:4433"];
        world.litz(&world.server, &arguments).fail(2, words);
    }
}
