//! `litz emulate` as a user runs it. Tests that need network namespaces are skipped without root.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use net::MonotonicClock;

use crate::support::Litz;
use crate::support::needs::has_root;

#[expect(clippy::disallowed_methods, reason = "stands for an unmodified program")]
fn udp() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    socket
}

/// Sends a datagram through `relay` to `server` and back; returns the round-trip time.
fn round_trip(client: &UdpSocket, relay: &str, server: &UdpSocket) -> Duration {
    let mut buffer = [0; 64];
    let clock = MonotonicClock::start();
    let start = clock.now();
    client.send_to(b"there", relay).expect("sent");
    let (bytes, from) = server.recv_from(&mut buffer).expect("arrived");
    server.send_to(&buffer[..bytes], from).expect("sent");
    client.recv_from(&mut buffer).expect("came back");
    clock.now().saturating_since(start).into()
}

#[test]
fn a_relay_delays_reports_every_second_and_ends_after_its_time() {
    let (server, client) = (udp(), udp());
    let to = format!("--to={}", server.local_addr().expect("an address"));
    let mut litz = Litz::start(&[
        "emulate",
        "relay",
        "--listen=127.0.0.1:0",
        "--listen=127.0.0.1:0",
        &to,
        "--link=name=a,delay=5ms",
        "--link=name=b,delay=40ms,back.delay=1ms",
        "--for=2500ms",
        "--json",
        "--progress",
    ]);
    let links = litz.wait_for("running")["links"].clone();
    for (index, name, least) in [(0, "a", 10), (1, "b", 41)] {
        assert_eq!(links[index]["name"], name);
        let listen = links[index]["listen"].as_str().expect("an address");
        let took = round_trip(&client, listen, &server);
        assert!(took >= Duration::from_millis(least) && took < Duration::from_millis(least + 2000), "{name}: {took:?}");
    }
    litz.wait_for("progress");
    let (status, stats) = litz.finish("stats");
    assert_eq!(status, 0);
    let stats = stats.expect("statistics");
    assert!(stats["span_us"].as_u64() >= Some(2_500_000), "{stats}");
    for index in 0..2 {
        let link = &stats["links"][index];
        assert_eq!((&link["forward"]["delivered"], &link["backward"]["delivered"]), (&1.into(), &1.into()), "{stats}");
    }
}

#[test]
fn an_interrupt_ends_it_after_the_statistics() {
    for signal in ["INT", "TERM"] {
        let mut litz =
            Litz::start(&["emulate", "relay", "--listen=127.0.0.1:0", "--to=127.0.0.1:9", "--json", "--link=loss=1%"]);
        litz.wait_for("running");
        litz.signal(signal);
        let (status, stats) = litz.finish("stats");
        assert_eq!(status, 130);
        assert_eq!(stats.expect("statistics")["links"][0]["forward"]["offered"], 0);
    }
}

#[test]
fn bad_arguments_end_with_status_2() {
    let taken = udp();
    let listen = format!("--listen={}", taken.local_addr().expect("an address"));
    for (arguments, words) in [
        (vec!["relay", "--listen=127.0.0.1:0", "--to=127.0.0.1:9", "--link=speed=1"], "there is no such key"),
        (vec!["relay", "--listen=127.0.0.1:0", "--to=127.0.0.1:9", "--link=trace=no/such"], "cannot read the file"),
        (vec!["relay", "--listen=127.0.0.1:0", "--to=127.0.0.1:9", "--link=trace=/dev/zero"], "not a regular file"),
        (vec!["relay", &listen, "--to=127.0.0.1:9"], "another socket has this port"),
        (vec!["tun", "--left-netns=litz-no-such", "--link=left=10.0.0.1"], "10.1.0.1/24"),
        (
            vec!["tun", "--left-netns=litz-no-such", "--link=left=10.0.0.1/24"],
            "there is no network namespace litz-no-such",
        ),
    ] {
        let mut all = vec!["emulate"];
        all.extend(arguments);
        all.push("--json");
        Litz::start(&all).fail(2, words);
    }
}

#[test]
fn a_relay_warns_if_it_cannot_open_sockets_for_clients() {
    let server = udp();
    let script = "ulimit -n 14; exec \"$@\"";
    let to = format!("--to={}", server.local_addr().expect("an address"));
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_litz")]);
    command.args(["emulate", "relay", "--listen=127.0.0.1:0", &to, "--json"]);
    let mut litz = Litz::of(&mut command);
    let running = litz.wait_for("running");
    let listen = running["links"][0]["listen"].as_str().expect("an address");
    let clients: Vec<_> = (0..20).map(|_| udp()).collect();
    for client in &clients {
        client.send_to(b"there", listen).expect("sent");
    }
    let warning = litz.wait_for("warning");
    assert_eq!(warning["kind"], "clients_not_served");
    assert!(warning["message"].as_str().is_some_and(|words| words.contains("Too many open files")), "{warning}");
    litz.signal("INT");
    let (status, stats) = litz.finish("stats");
    let link = &stats.expect("statistics")["links"][0];
    assert_eq!((status, &link["turned_away"]), (130, &0.into()), "{link}");
    assert!(link["unserved"].as_u64() > Some(0) && link["clients"].as_u64() > Some(0), "{link}");
}

#[test]
fn interrupted_measurements_leave_no_namespace() {
    if !has_root() {
        return;
    }
    let mut litz = Litz::start(&["emulate", "limits", "--for=100ms", "--json"]);
    let ours = format!("litz-limits-{}-", litz.id());
    let clock = MonotonicClock::start();
    // Both namespaces exist, and the first measurement is over.
    while ip(&["netns", "list"]).matches(&ours).count() < 2 {
        assert!(clock.now().since_start() < units::Duration::from_secs(60), "no namespaces");
        pause();
    }
    litz.signal("INT");
    litz.fail(130, "interrupted");
    assert!(!ip(&["netns", "list"]).contains(&ours), "{}", ip(&["netns", "list"]));
}

#[test]
fn limits_has_its_own_help() {
    let output = Command::new(env!("CARGO_BIN_EXE_litz")).args(["emulate", "limits", "--help"]).output();
    let help = String::from_utf8(output.expect("it runs").stdout).expect("text");
    assert!(help.contains("130  interrupted") && !help.contains("rate=100Mb/s"), "{help}");
}

#[expect(clippy::disallowed_methods, reason = "a test looks again now and then")]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Two namespaces, removed when dropped.
struct Namespaces([String; 2]);

impl Namespaces {
    fn new(name: &str) -> Option<Self> {
        if !has_root() {
            return None;
        }
        let names = ["a", "b"].map(|side| format!("litz-{name}-{}-{side}", std::process::id()));
        let namespaces = Self(names);
        for name in &namespaces.0 {
            ip(&["netns", "add", name]);
        }
        Some(namespaces)
    }

    /// The devices of both namespaces.
    fn devices(&self) -> String {
        self.0.iter().map(|name| ip(&["-netns", name, "address"])).collect()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            // A test that failed early may not have created it.
            let _gone = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().expect("the command ip");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn devices_exist_while_it_runs_and_are_removed_at_any_end() {
    let Some(namespaces) = Namespaces::new("ends") else { return };
    let [left, right] = &namespaces.0;
    let sides = [format!("--left-netns={left}"), format!("--right-netns={right}")];
    for signal in ["INT", "TERM", "KILL"] {
        let mut litz = Litz::start(&[
            "emulate",
            "tun",
            &sides[0],
            &sides[1],
            "--link=name=one,left=10.79.0.1/24,right=10.79.0.2/24,mtu=1400,delay=1ms",
            "--link=name=two,left=fd79::1/64,right=fd79::2/64",
            "--json",
        ]);
        let links = litz.wait_for("running")["links"].clone();
        assert_eq!((&links[0]["name"], &links[1]["left"]["addresses"][0]), (&"one".into(), &"fd79::1/64".into()));
        let devices = namespaces.devices();
        for expected in ["one", "two", "10.79.0.1/24", "10.79.0.2/24", "fd79::1/64", "fd79::2/64", "mtu 1400"] {
            assert!(devices.contains(expected), "{expected}: {devices}");
        }
        litz.signal(signal);
        let (status, stats) = litz.finish("stats");
        assert_eq!((status, stats.is_some()), if signal == "KILL" { (-1, false) } else { (130, true) });
        let devices = namespaces.devices();
        assert!(!devices.contains("one") && !devices.contains("two"), "after {signal}: {devices}");
    }
}

#[test]
fn a_removed_device_ends_it_with_status_2() {
    let Some(namespaces) = Namespaces::new("gone") else { return };
    let [left, right] = &namespaces.0;
    let sides = [format!("--left-netns={left}"), format!("--right-netns={right}")];
    let mut litz = Litz::start(&["emulate", "tun", &sides[0], &sides[1], "--link=name=one", "--json"]);
    litz.wait_for("running");
    ip(&["-netns", left, "link", "delete", "one"]);
    litz.fail(2, "link one stopped");
    assert!(litz.seen.iter().any(|event| event["event"] == "stats"), "the statistics come first: {:?}", litz.seen);
}
