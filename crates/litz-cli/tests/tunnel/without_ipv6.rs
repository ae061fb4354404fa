//! Hosts without IPv6: it is disabled for new devices or for all, or the kernel has none.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::stream::Stream;
use super::underlay::give_default_routes;
use super::{SEND_FROM, SERVER, World, ip};
use crate::support::Litz;

/// The command that lets new devices have IPv6.
const REMEDY: &str = "`sysctl -w net.ipv6.conf.default.disable_ipv6=0`";

/// Addresses beyond the client's default routes.
const BEYOND: [&str; 2] = ["10.200.0.1", "fd20::1"];

/// The options with which all packets go through the tunnel, or some.
const OPTIONS: [&[&str]; 3] = [&[], &["--all"], &["--all", "--kill-switch"]];

impl World {
    /// Disables IPv6 (1) for `all` devices, or for those that are made from now on (`default`).
    fn disable_ipv6(&self, name: &str, which: &str, value: u8) {
        ip(&format!("netns exec {name} sysctl -qw net.ipv6.conf.{which}.disable_ipv6={value}"));
    }

    /// What the client's packets are led by, in both versions: rules, and the tunnel's table.
    fn rules(&self) -> Vec<String> {
        let show = |arguments: &str| {
            let mut command = Command::new("ip");
            command.args(["-n", &self.client]).args(arguments.split(' '));
            let shown = String::from_utf8(command.output().expect("ip").stdout).expect("text");
            // Until the kernel has noticed that a link has a carrier.
            shown.replace(" linkdown", "")
        };
        ["-4 rule", "-6 rule", "-4 route", "-6 route show table 0x6c69747a"].map(show).to_vec()
    }

    /// Whether the client's programs can send to these addresses outside the tunnel, or through it.
    fn can_send(&self) -> [bool; 2] {
        BEYOND.map(|to| {
            let own = if to.contains(':') { "::" } else { "0.0.0.0" };
            let sent = World::in_namespace(&self.client, "python3", &["-c", SEND_FROM, own, to, "any"]).output();
            sent.expect("python3 starts").status.success()
        })
    }
}

/// What the command has warned of.
fn warned(command: &Litz) -> Vec<String> {
    let warnings = command.seen.iter().filter(|event| event["kind"] == "ipv6_left_out");
    warnings.map(|event| event["message"].as_str().expect("text").to_owned()).collect()
}

fn has_one(warnings: &[String], words: &[&str]) -> bool {
    warnings.len() == 1 && words.iter().all(|words| warnings[0].contains(words))
}

fn carries_a_stream(world: &World) {
    let mut stream = Stream::start(world, SERVER[0]);
    stream.await_progress(20);
    stream.finish();
}

#[test]
fn hosts_with_ipv6_disabled_have_a_tunnel_of_ipv4() {
    let Some(world) = World::new("no6", 1, &["python3", "ss", "sysctl"]) else { return };
    [&world.client, &world.server].iter().for_each(|name| world.disable_ipv6(name, "all", 1));
    ip(&format!("-n {} addr add {}/32 dev lo", world.server, BEYOND[0]));
    ip(&format!("-n {} route add default via 10.9.0.2 dev c0", world.client));
    let _echo = world.echo();
    let before = world.rules();
    for options in OPTIONS {
        let (mut server, ticket) = world.serve(&["--route=fd07::/64", "--dns=fd76:6c69:747a::1"]);
        let words = ["the address fd76:6c69:747a::1/64", "the route to fd07::/64", "the name server fd76", REMEDY];
        assert!(has_one(&warned(&server), &words), "{:#?}", server.seen);
        let listening = server.seen.iter().find(|event| event["event"] == "listening").expect("it was waited for");
        assert_eq!(listening["tunnel_addresses"], json!(["10.76.0.1/24"]));
        let mut client = world.litz(&world.client, &[&["up"], options, &[&ticket]].concat());
        assert_eq!(client.wait_for("up")["addresses"], json!(["10.76.0.2/24"]));
        server.wait_for("client");
        // The server has assigned no IPv6.
        assert_eq!(warned(&client), Vec::<String>::new());
        carries_a_stream(&world);
        World::end(client, server);
        assert_eq!(world.rules(), before);
    }
}

#[test]
fn a_client_whose_device_has_no_ipv6_refuses_its_packets_with_all_and_none_leaves_outside() {
    let Some(world) = World::new("new6", 1, &["python3", "ss", "sysctl"]) else { return };
    give_default_routes(&world);
    world.disable_ipv6(&world.client, "default", 1);
    let _echo = world.echo();
    let before = world.rules();
    assert_eq!(world.can_send(), [true, true]);
    for options in OPTIONS {
        let serve = ["--route=fd07::/64", "--route=192.168.7.0/24", "--dns=10.76.0.1", "--dns=fd76:6c69:747a::1"];
        let (mut server, ticket) = world.serve(&serve);
        assert_eq!(warned(&server), Vec::<String>::new());
        let up = [&["up"], options, &[&ticket]].concat();
        let mut client = world.litz(&world.client, &up);
        let event = client.wait_for("up");
        assert_eq!((&event["addresses"], &event["routes"]), (&json!(["10.76.0.2/24"]), &json!(["192.168.7.0/24"])));
        server.wait_for("client");
        let words = ["the address fd76:6c69:747a::2/64, the route to fd07::/64, the name server fd76:6c69", REMEDY];
        assert!(has_one(&warned(&client), &words), "{:#?}", client.seen);
        let sends_all = !options.is_empty();
        assert_eq!(warned(&client)[0].contains("Packets of IPv6 are refused"), sends_all);
        assert_eq!(world.can_send(), [true, !sends_all]);
        carries_a_stream(&world);

        // The same device: nothing else is left out.
        server.kill();
        server = world.serve(&serve).0;
        client.wait_for("retrying");
        client.wait_for("up");
        server.wait_for("client");
        assert_eq!(warned(&client).len(), 1);

        // A command that is killed leaves rules, which the next one undoes or takes over.
        client.kill();
        if options.contains(&"--kill-switch") {
            assert_eq!(world.can_send(), [false, false]);
        }
        client = world.litz(&world.client, &up);
        client.wait_for("up");
        server.wait_for("client");
        assert_eq!(world.can_send(), [true, !sends_all]);
        client.kill();
        if sends_all {
            world.down();
        }
        assert_eq!(world.rules(), before);
        assert_eq!(world.can_send(), [true, true]);
        drop(server);
    }
}

#[test]
fn a_tunnel_of_ipv6_alone_fails_on_a_host_without_and_says_what_to_do() {
    let Some(world) = World::new("only6", 1, &["sysctl"]) else { return };
    let six = "--address=fd80::1/64";
    [&world.client, &world.server].iter().for_each(|name| world.disable_ipv6(name, "default", 1));
    let mut server = world.litz(&world.server, &["serve", six]);
    server.fail(2, &format!("(net.ipv6.conf.default.disable_ipv6 is 1): run {REMEDY}, or add an IPv4 --address"));

    // A client that is listed with such an address.
    let key = World::key_in(&format!("--state-dir={}", world.path("state-true").display()));
    let file = world.path("serve.toml");
    let client = format!("[[client]]\nkey = '{key}'\naddress = 'fd76:6c69:747a::9'\nnetwork = 'fd66::/64'\n");
    std::fs::write(&file, client).expect("a file");
    let (mut server, ticket) = world.serve(&[file.to_str().expect("text")]);
    let words = ["the network fd66::/64 behind a client", "the address fd76:6c69:747a::9 of a client"];
    assert!(has_one(&warned(&server), &words), "{:#?}", server.seen);
    world.litz(&world.client, &["up", "--by-key", &ticket]).fail(2, "its listed addresses are of IPv6");
    server.wait_for("ended");
    drop(server);

    // The server has IPv6, and the client does not.
    world.disable_ipv6(&world.server, "default", 0);
    let (server, ticket) = world.serve(&["--dns=fd76:6c69:747a::1"]);
    let mut client = world.litz(&world.client, &["up", "--dns", &ticket]);
    client.fail(2, "only name servers with IPv6 addresses");
    drop(server);
    let (mut server, ticket) = world.serve(&[six]);
    let mut client = world.litz(&world.client, &["up", "--all", "--kill-switch", &ticket]);
    client.fail(2, &format!("run {REMEDY}, or give the server an IPv4 --address, or use --userspace"));
    world.down();
    // What it says helps.
    world.disable_ipv6(&world.client, "default", 0);
    let mut client = world.litz(&world.client, &["up", &ticket]);
    assert_eq!(client.wait_for("up")["addresses"], json!(["fd80::2/64"]));
    server.wait_for("client");
    server.wait_for("client");
    World::end(client, server);
}

/// Runs a command as on a kernel without IPv6: FOLDER COMMAND... There are no settings and no sockets of IPv6.
const WITHOUT_KERNEL: &str = r#"
folder=$1; shift
mkdir -p "$folder"
mount -t tmpfs none "$folder"
mkdir "$folder/ipv4" "$folder/core"
mount --bind /proc/sys/net/ipv4 "$folder/ipv4"
mount --bind /proc/sys/net/core "$folder/core"
mount --rbind "$folder" /proc/sys/net
exec python3 -c '
import ctypes, os, struct, sys
socket = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
filter = [(0x20, 0, 0, 0), (0x15, 0, 3, socket), (0x20, 0, 0, 16), (0x15, 0, 1, 10),
          (0x06, 0, 0, 0x00050000 | 97), (0x06, 0, 0, 0x7fff0000)]  # socket(AF_INET6): EAFNOSUPPORT
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in filter))
program = struct.pack("HxxxxxxQ", len(filter), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
try:
    import socket
    socket.socket(socket.AF_INET6)
    sys.exit("there is IPv6")
except OSError:
    os.execvp(sys.argv[1], sys.argv[1:])
' "$@"
"#;

impl World {
    /// A command of `litz tunnel` on a host whose kernel seems to have no IPv6.
    fn without_kernel(&self, name: &str, arguments: &[&str]) -> Command {
        let side = name == self.client;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name, "sh", "-e", "-c", WITHOUT_KERNEL, "sh"]);
        command.arg(self.path(&format!("sys-{side}")));
        command.arg(env!("CARGO_BIN_EXE_litz")).arg("tunnel").args(arguments);
        command.env("RUNTIME_DIRECTORY", self.path(&format!("run-{side}")));
        command
    }

    fn litz_without_kernel(&self, name: &str, arguments: &[&str]) -> Litz {
        let state = format!("--state-dir={}", self.path(&format!("state-{}", name == self.client)).display());
        Litz::of(self.without_kernel(name, arguments).args([&state, "--json"]))
    }
}

#[test]
fn a_kernel_without_ipv6_is_asked_for_none() {
    let Some(world) = World::new("kernel6", 1, &["python3", "ss", "mount", "sysctl"]) else { return };
    if !Path::new("/proc/sys/net/core").exists() {
        return crate::support::needs::skipped_by_the_kernel("/proc/sys/net/core");
    }
    [&world.client, &world.server].iter().for_each(|name| world.disable_ipv6(name, "all", 1));
    ip(&format!("-n {} addr add {}/32 dev lo", world.server, BEYOND[0]));
    ip(&format!("-n {} route add default via 10.9.0.2 dev c0", world.client));
    let _echo = world.echo();
    let before = world.rules();
    for options in OPTIONS {
        let mut server = world.litz_without_kernel(&world.server, &["serve"]);
        let listening = server.wait_for("listening");
        assert_eq!(listening["tunnel_addresses"], json!(["10.76.0.1/24"]));
        assert!(
            has_one(&warned(&server), &["the kernel of this host has no IPv6", "fd76:6c69:747a::1/64"]),
            "{:#?}",
            server.seen
        );
        let up = [&["up"], options, &[listening["ticket"].as_str().expect("text")]].concat();
        let mut client = world.litz_without_kernel(&world.client, &up);
        client.wait_for("up");
        server.wait_for("client");
        // The rules and the tunnel's table of IPv6, which this kernel has for other programs.
        let of_ipv6 = |rules: &[String]| [rules[1].clone(), rules[3].clone()];
        assert_eq!(of_ipv6(&world.rules()), of_ipv6(&before));
        carries_a_stream(&world);
        client.kill();
        let is_strict = options.contains(&"--kill-switch");
        assert_eq!(world.can_send()[0], !is_strict);
        client = world.litz_without_kernel(&world.client, &up);
        client.wait_for("up");
        server.wait_for("client");
        server.wait_for("gone");
        carries_a_stream(&world);
        if is_strict {
            client.kill();
            let down = world.without_kernel(&world.client, &["down"]).output().expect("it starts");
            assert!(down.status.success(), "{down:?}");
            drop(server);
        } else {
            World::end(client, server);
        }
        assert_eq!(world.rules(), before);
        assert!(world.can_send()[0]);
    }
}

#[test]
fn a_client_of_a_server_without_ipv6_gets_ipv4_alone() {
    let Some(world) = World::new("server6", 1, &["python3", "ss", "sysctl"]) else { return };
    give_default_routes(&world);
    world.disable_ipv6(&world.server, "default", 1);
    let _echo = world.echo();
    let before = world.rules();
    for options in OPTIONS {
        let (mut server, ticket) = world.serve(&[]);
        assert!(has_one(&warned(&server), &["the address fd76:6c69:747a::1/64", REMEDY]), "{:#?}", server.seen);
        let mut client = world.litz(&world.client, &[&["up"], options, &[&ticket]].concat());
        assert_eq!(client.wait_for("up")["addresses"], json!(["10.76.0.2/24"]));
        server.wait_for("client");
        assert_eq!(warned(&client), Vec::<String>::new());
        carries_a_stream(&world);
        World::end(client, server);
        assert_eq!(world.rules(), before);
    }
}
