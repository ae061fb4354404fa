//! The kill switch against sockets that choose their device themselves, and against programs that remove what
//! the tunnel has set.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::underlay::give_default_routes;
use super::{Running, World, ip, try_outside};
use crate::support::Litz;
use crate::support::needs::{path_of, skipped};

/// Sends packets by every kind of socket that a user without capabilities can open, and by one that root has given a
/// source route, each to its own port or with its own text, in rounds, until FILE.stop is there: FILE. FILE.round has the
/// number of complete rounds.
const PROBE: &str = r"
import os, socket, struct, sys, time
file = sys.argv[1]
# Through the gateway, as a router on the way: a loose source route (RFC 791, section 3.1), padded.
routed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
route = bytes([131, 7, 4]) + socket.inet_aton('10.9.0.2') + b'\0'
routed.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, route)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
FOUR, SIX, DEVICE = socket.AF_INET, socket.AF_INET6, b'c0'
BEYOND = {FOUR: '10.200.0.1', SIX: 'fd20::1'}
def index():
    return socket.if_nametoindex('c0')
def udp(family, options=(), to=None, port=0, own=None, protocol=0, cmsg=()):
    with socket.socket(family, socket.SOCK_DGRAM, protocol) as s:
        for level, name, value in options:
            s.setsockopt(level, name, value)
        if own:
            s.bind((own, 0))
        s.sendmsg([b'probe'], [(level, name, value) for level, name, value in cmsg], 0, (to or BEYOND[family], port))
def tcp(family, options=(), port=0, own=None):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.setblocking(False)
        for level, name, value in options:
            s.setsockopt(level, name, value)
        if own:
            s.bind((own, 0))
        s.connect((BEYOND[family], port))
def ping(family):
    with socket.socket(family, socket.SOCK_DGRAM, socket.IPPROTO_ICMP if family == FOUR else socket.IPPROTO_ICMPV6) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, DEVICE)
        s.sendto(bytes([8 if family == FOUR else 128, 0, 0, 0, 0, 1, 0, 1]) + b'probe', (BEYOND[family], 0))
def join(group):
    with socket.socket(FOUR, socket.SOCK_DGRAM) as s:
        request = socket.inet_aton(group) + struct.pack('=4si', bytes(4), index())
        s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        time.sleep(0.03)  # each change puts off the kernel's report by two ticks
bound = (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, DEVICE)
def ip4(name, value): return (socket.IPPROTO_IP, name, value)
def ip6(name, value): return (socket.IPPROTO_IPV6, name, value)
def mreqn(): return struct.pack('=4s4si', bytes(4), bytes(4), index())
PROBES = [
    lambda: udp(FOUR, port=5100),
    lambda: udp(SIX, port=5101),
    lambda: tcp(FOUR, port=5102),
    lambda: tcp(SIX, port=5103),
    lambda: udp(FOUR, [bound], port=5104),
    lambda: udp(SIX, [bound], port=5105),
    lambda: tcp(FOUR, [bound], port=5106),
    lambda: tcp(SIX, [bound], port=5107),
    lambda: udp(FOUR, port=5108, cmsg=[ip4(8, struct.pack('=i4s4s', index(), bytes(4), bytes(4)))]),
    lambda: udp(SIX, port=5109, cmsg=[ip6(socket.IPV6_PKTINFO, bytes(16) + struct.pack('=I', index()))]),
    lambda: udp(FOUR, [ip4(50, struct.pack('!I', index()))], port=5110),
    lambda: udp(SIX, [ip6(76, struct.pack('!I', index()))], port=5111),
    lambda: udp(FOUR, [ip4(socket.IP_MULTICAST_IF, mreqn()), ip4(socket.IP_MULTICAST_TTL, 9)], '239.1.2.3', 5112),
    lambda: udp(FOUR, [ip4(socket.IP_MULTICAST_IF, mreqn())], '224.0.0.251', 5113),
    lambda: udp(SIX, [ip6(socket.IPV6_MULTICAST_IF, index()), ip6(socket.IPV6_MULTICAST_HOPS, 9)], 'ff0e::77', 5114),
    lambda: udp(SIX, [ip6(socket.IPV6_MULTICAST_IF, index())], 'ff02::fb', 5115),
    lambda: udp(FOUR, [bound, (socket.SOL_SOCKET, socket.SO_BROADCAST, 1)], '255.255.255.255', 5116),
    lambda: routed.sendto(b'probe', ('10.200.0.1', 5117)),
    lambda: udp(FOUR, port=5118, own='10.9.0.50'),
    lambda: tcp(FOUR, port=5119, own='10.9.0.50'),
    lambda: udp(SIX, port=5120, own='fd09::50'),
    lambda: udp(FOUR, port=5121),
    lambda: udp(SIX, port=5122),
    lambda: tcp(FOUR, port=5123),
    lambda: tcp(SIX, port=5124),
    lambda: udp(FOUR, [bound], port=5140, protocol=136),
    lambda: ping(FOUR),
    lambda: ping(SIX),
    lambda: join('239.7.7.7'),
]
rounds = 0
while not os.path.exists(file + '.stop'):
    for probe in PROBES:
        try:
            probe()
        except OSError:
            pass  # refused, or the link is down
    rounds += 1
    with open(file + '.new', 'w') as out:
        out.write(str(rounds))
    os.rename(file + '.new', file + '.round')
    time.sleep(0.002)
";

/// The marks of the probes that leave where nothing holds them back: the last port of each, and `ping4`, `ping6` and
/// `igmp`. UDP-Lite is not in every kernel.
const PROBE_PORTS: std::ops::RangeInclusive<u16> = 5100..=5124;

/// Marks packets on their way out, as administrators do who choose a link by program: the kernel
/// looks again for the route of each, by the mark. The ports are the last ones of [`PROBE_PORTS`].
const MARKING: &str = "add table inet marking; \
                       add chain inet marking output { type route hook output priority mangle; }; \
                       add rule inet marking output meta l4proto { tcp, udp } th dport 5121-5124 meta mark set 1";

/// Writes what leaves on a device, other than packets to the port of the server and to the link's neighbours: DEVICE
/// FILE PORT. Each has a line, once. It ends when FILE.stop is there.
const CAPTURE: &str = r"
import os, socket, struct, sys
device, file, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
# With a protocol from the start, it would take packets of other devices until it is bound.
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
s.bind((device, 3))
s.settimeout(0.05)
SERVER = bytes([10, 201, 0, 2])
def own4(ip): return ip[:3] == bytes([10, 9, 0])
def own6(ip): return ip[:2] in (b'\xfe\x80', b'\xfd\x09') or ip == bytes(16)
def mark(data, protocol):
    if protocol == 0x0806:
        # The tunnel's own socket asks for its server where there is no route.
        return None if own4(data[24:28]) or data[24:28] == SERVER else 'arp ' + socket.inet_ntoa(data[24:28])
    if protocol == 0x0800:
        at, kind = (data[0] & 15) * 4, data[9]
        if at == 20 and own4(data[16:20]):
            return None
        if kind == 1:
            return 'ping4' if data[at] == 8 else 'icmp ' + data[:40].hex()
        if kind == 2:
            return 'igmp'
    elif protocol == 0x86dd:
        at, kind = 40, data[6]
        if own6(data[24:40]):
            return None
        if kind == 0:
            at, kind = 48, data[40]
        if kind == 58:
            if data[at] in (130, 131, 132, 133, 136, 143) or data[at] == 135 and own6(data[at + 8:at + 24]):
                return None
            return 'ping6' if data[at] == 128 else 'icmpv6 ' + data[:64].hex()
    else:
        return None
    to = struct.unpack('!H', data[at + 2:at + 4])[0]
    if kind == 17 and to == port and data[16:20] == SERVER:
        global own
        own += 1
        return None
    return str(to)
seen, own = {}, 0
open(file + '.ready', 'w').close()
# There may be packets without a pause.
while not os.path.exists(file + '.stop'):
    try:
        data, (_, protocol, kind, _, _) = s.recvfrom(65535)
    except (TimeoutError, OSError):  # also ENETDOWN: the link goes down
        continue
    if kind == 4:  # PACKET_OUTGOING
        word = mark(data, protocol)
        if word:
            seen[word] = data[:60].hex()
if own:
    seen['own'] = ''
open(file, 'w').write('\n'.join(f'{word} {data}' for word, data in seen.items()))
";

/// Sends datagrams from a host behind the client, as a container does, until FILE.stop is there: FILE.
const FORWARDED: &str = r"
import os, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while not os.path.exists(sys.argv[1] + '.stop'):
    try:
        s.sendto(b'probe', ('10.200.0.1', 5150))
    except OSError:
        pass
    time.sleep(0.002)
";

/// A program that runs until its file `.stop` is there.
struct UntilStopped {
    running: Running,
    file: PathBuf,
}

impl UntilStopped {
    fn start(world: &World, namespace: &str, script: &str, name: &str, arguments: &[&str]) -> Self {
        // In a folder that the user of the script may write.
        let folder = world.path_for_all(name);
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).expect("a mode");
        let file = folder.join("file");
        let shown = file.display().to_string();
        let arguments = arguments.iter().map(|argument| if *argument == "FILE" { &shown } else { *argument });
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "timeout", "240", "python3", "-c", script]).args(arguments);
        Self { running: Running(command.spawn().expect("python3 starts")), file }
    }

    fn with(&self, end: &str) -> PathBuf {
        PathBuf::from(format!("{}.{end}", self.file.display()))
    }

    fn await_file(&mut self, end: &str) {
        while !self.with(end).exists() {
            assert!(self.running.0.try_wait().expect("it was started").is_none(), "it ended");
            std::thread::yield_now();
        }
    }

    fn rounds(&self) -> u64 {
        std::fs::read_to_string(self.with("round")).map_or(0, |text| text.parse().expect("a number"))
    }

    /// Waits until all kinds of sockets were tried since now.
    #[expect(clippy::disallowed_methods, reason = "a test looks at the file of another process")]
    fn await_round(&mut self) {
        let wanted = self.rounds() + 2;
        while self.rounds() < wanted {
            assert!(self.running.0.try_wait().expect("it was started").is_none(), "the probes ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it, and returns the lines that it has written.
    fn end(mut self) -> BTreeSet<String> {
        std::fs::write(self.with("stop"), "").expect("a file");
        assert!(self.running.0.wait().expect("it was started").success());
        std::fs::read_to_string(&self.file).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

fn capture(world: &World, name: &str, port: &str) -> UntilStopped {
    let mut capture = UntilStopped::start(world, &world.client, CAPTURE, name, &["c0", "FILE", port]);
    capture.await_file("ready");
    capture
}

/// Everything that the client's packets are led by.
fn rules(world: &World) -> String {
    let show = |program: &str, arguments: &str| {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let output = World::in_namespace(&world.client, program, &arguments).output().expect("it starts");
        String::from_utf8(output.stdout).expect("text").replace(" linkdown", "")
    };
    let tables = ["-4 rule", "-6 rule", "-4 route show table 0x6c69747a", "-6 route show table 0x6c69747a"];
    let addresses = ["-4 -o addr show dev litz0", "-6 -o addr show dev litz0 scope global", "-o link show dev litz0"];
    let shown: String = tables.iter().chain(&addresses).map(|arguments| show("ip", arguments)).collect();
    // Lines of the tunnel, without the number of a device that was made again.
    let is_ours = |line: &&str| line.contains("litz0") || line.contains("proto 108");
    let lines = shown
        .lines()
        .filter(is_ours)
        .map(|line| line.split_once(": ").map_or(line, |(_, rest)| rest).to_owned() + "\n");
    lines.collect::<String>() + &show("nft", "list table inet litz_kill_switch")
}

/// A client with a policy of its own for some sources, and with a host behind it that it forwards packets for.
fn give_policies(world: &mut World) -> String {
    give_default_routes(world);
    let inner = format!("{}-v", world.client);
    ip(&format!("netns add {inner}"));
    world.routers.push(inner.clone());
    let client = world.client.clone();
    ip(&format!("link add cv0 netns {client} type veth peer name v0 netns {inner}"));
    for (name, device, address) in [(&client, "cv0", "172.31.0.1/24"), (&inner, "v0", "172.31.0.2/24")] {
        ip(&format!("-n {name} addr add {address} dev {device}"));
        ip(&format!("-n {name} link set {device} up"));
    }
    ip(&format!("-n {inner} route add default via 172.31.0.1"));
    ip(&format!("netns exec {client} sysctl -qw net.ipv4.ip_forward=1"));
    ip(&format!("netns exec {client} sysctl -qw net.ipv4.ip_unprivileged_port_start=0"));
    let mut pings = Command::new("ip");
    pings.args(["netns", "exec", &client, "sysctl", "-qw", "net.ipv4.ping_group_range=0 65535"]);
    assert!(pings.status().expect("ip").success());
    ip(&format!("-n {client} addr add 10.9.0.50/24 dev c0"));
    ip(&format!("-n {client} addr add fd09::50/64 dev c0 nodad"));
    ip(&format!("-n {client} route add default via 10.9.0.2 dev c0 table 77"));
    ip(&format!("-n {client} -6 route add default via fd09::2 dev c0 table 77"));
    ip(&format!("-n {client} rule add from 10.9.0.50 table 77 pref 1000"));
    ip(&format!("-n {client} -6 rule add from fd09::50 table 77 pref 1000"));
    ip(&format!("-n {client} rule add iif cv0 table 77 pref 1001"));
    ip(&format!("-n {client} rule add fwmark 1 table 77 pref 1002"));
    ip(&format!("-n {client} -6 rule add fwmark 1 table 77 pref 1002"));
    world.succeed("nft", &[MARKING]);
    ip(&format!("-n {} addr add fd09::2/64 dev s0 nodad", world.server));
    ip(&format!("-n {} addr add 10.201.0.2/24 dev s0", world.server));
    inner
}

/// A change that network managers, firewalls and people make, as commands in the client's namespace.
const HABITS: &[&[&str]] = &[
    &["ip rule del pref 32100", "ip rule del pref 32101", "ip -6 rule del pref 32101", "ip -6 rule del pref 32102"],
    &["ip route flush table 0x6c69747a", "ip -6 route flush table 0x6c69747a"],
    &[
        "ip rule flush",
        "ip rule add table main pref 32766",
        "ip rule add from 10.9.0.50 table 77 pref 1000",
        "ip rule add iif cv0 table 77 pref 1001",
        "ip rule add fwmark 1 table 77 pref 1002",
    ],
    &["ip addr flush dev litz0"],
    &["ip link set litz0 down"],
    &["ip link set litz0 mtu 1300"],
    &["ip route replace default via 10.9.0.2 dev c0 table 0x6c69747a"],
    &["ip route del default", "ip route add default via 10.9.0.2 dev c0 metric 5"],
];

/// Changes of the packet filter itself. Until it is there again, in some milliseconds, sockets that name a device are not
/// held back.
const FILTER_HABITS: &[&[&str]] = &[
    &["nft flush ruleset"],
    &["nft flush table inet litz_kill_switch"],
    &["nft delete table inet litz_kill_switch", "ip rule del pref 32100", "ip route flush table 0x6c69747a"],
];

/// The link is lost and comes back, as at a suspension, with another address.
const RENEWED: &[&str] = &[
    "ip link set c0 down",
    "ip addr del 10.9.0.1/24 dev c0",
    "ip link set c0 up",
    "ip addr add 10.9.0.77/24 dev c0",
    "ip addr add 10.9.0.50/24 dev c0",
    "ip route add default via 10.9.0.2 dev c0",
    "ip route replace default via 10.9.0.2 dev c0 table 77",
    "ip -6 addr replace fd09::1/64 dev c0 nodad",
    "ip -6 addr replace fd09::50/64 dev c0 nodad",
    "ip -6 route replace default via fd09::2 dev c0",
    "ip -6 route replace default via fd09::2 dev c0 table 77",
];

fn do_all(world: &World, commands: &[&str]) {
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        // Some may have nothing to do.
        let _done = World::in_namespace(&world.client, words[0], &words[1..]).output().expect("it starts");
    }
}

/// Waits until the client's rules are these.
fn await_rules(world: &World, wanted: &str) {
    if (0..2000).any(|_| rules(world) == wanted) {
        return;
    }
    panic!("they are not back:\n{}\nwanted:\n{wanted}", rules(world));
}

#[test]
fn nothing_leaves_outside_whatever_socket_is_used_and_whatever_other_programs_remove() {
    let Some(mut world) = World::new("sockets", 1, &["python3", "nft", "sysctl"]) else { return };
    let inner = give_policies(&mut world);
    // Packets to this address leave, and nothing comes back.
    ip(&format!("-n {} neigh add 10.9.0.99 lladdr 02:00:00:00:00:01 dev c0 nud permanent", world.client));
    let (mut server, unanswered) = world.serve(&["--advertise", "10.9.0.99:4433"]);
    let mut probes = UntilStopped::start(&world, &world.client, PROBE, "probes", &["FILE"]);
    let forwarded = UntilStopped::start(&world, &inner, FORWARDED, "forwarded", &["FILE"]);

    // Each kind leaves where nothing holds it back, and is seen.
    let ports = PROBE_PORTS.chain([5150]).map(|port| port.to_string());
    let mut unseen: BTreeSet<String> = ports.chain(["ping4", "ping6", "igmp"].map(str::to_owned)).collect();
    for attempt in 0..20 {
        if unseen.is_empty() {
            break;
        }
        let open = capture(&world, &format!("open-{attempt}"), "4433");
        probes.await_round();
        for line in open.end() {
            unseen.remove(line.split(' ').next().expect("a word"));
        }
    }
    assert!(unseen.is_empty(), "they do not leave at all: {unseen:?}");

    // Before the server answers, and after that was ended by a kill.
    let up = |ticket: &str| world.litz(&world.client, &["up", "--all", "--kill-switch", ticket]);
    let mut client = up(&unanswered);
    client.wait_for("unanswered");
    let before = capture(&world, "before", "4433");
    probes.await_round();
    client.kill();
    probes.await_round();
    assert_eq!(before.end(), BTreeSet::new());
    world.down();
    ip(&format!("-n {} neigh del 10.9.0.99 dev c0", world.client));

    // While it is up, whatever is removed.
    server.kill();
    let ticket;
    // Beyond the default route, so that only their mark lets the tunnel's own packets out.
    (server, ticket) = world.serve(&["--listen", ":4433", "--advertise", "10.201.0.2:4433"]);
    client = up(&ticket);
    client.wait_for("up");
    server.wait_for("client");
    let while_up = capture(&world, "up", "4433");
    let wanted = rules(&world);
    assert!(wanted.contains("proto 108") && wanted.contains("10.9.0.0/24"), "{wanted}");
    for habit in HABITS {
        do_all(&world, habit);
        await_rules(&world, &wanted);
        probes.await_round();
    }
    do_all(&world, RENEWED);
    await_rules(&world, &wanted);
    probes.await_round();
    let own = BTreeSet::from(["own ".to_owned()]);
    assert_eq!(while_up.end(), own, "only the tunnel's own packets");

    for habit in FILTER_HABITS {
        do_all(&world, habit);
        await_rules(&world, &wanted);
    }

    // After a kill, and while another command takes over.
    let killed = capture(&world, "killed", "4433");
    client.kill();
    probes.await_round();
    let status = world.command(&world.client).args(["status", "--json"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&status.stdout).into_owned() + &String::from_utf8_lossy(&status.stderr);
    assert_eq!(status.status.code(), Some(2), "{text}");
    assert!(text.contains("refused (--kill-switch): `litz tunnel down` ends that"), "{text}");
    client = up(&ticket);
    client.wait_for("up");
    server.wait_for("client");
    probes.await_round();
    assert_eq!(killed.end(), own, "only the tunnel's own packets");

    // It ends with the command.
    world.down();
    assert_eq!(client.finish("down").0, 130);
    assert!(!rules(&world).contains("kill_switch") && !rules(&world).contains("108"), "{}", rules(&world));
    probes.await_round();
    assert!(try_outside(&world, "out"));
    forwarded.end();
    probes.end();
}

#[test]
fn a_setting_that_cannot_be_made_again_is_told_and_listed_until_it_can() {
    let Some(world) = World::new("contested", 1, &["sysctl"]) else { return };
    let (mut server, ticket) = world.serve(&[]);
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    // The device loses its address, and the kernel gives it none.
    let disable = |value: u8| {
        ip(&format!("netns exec {} sysctl -qw net.ipv6.conf.litz0.disable_ipv6={value}", world.client));
    };
    disable(1);
    let address = "the address fd76:6c69:747a::2/64 of litz0";
    let warning = await_warning(&mut client);
    assert!(warning.contains(address) && warning.contains("cannot be made again"), "{warning}");
    let status = world.status();
    assert!(status["missing"][0].as_str().is_some_and(|text| text.contains(address)), "{status}");
    let text = world.command(&world.client).arg("status").output().expect("it starts");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains(&format!("  missing, and cannot be made again: {address}")), "{text}");
    disable(0);
    let warning = await_warning(&mut client);
    assert!(warning.contains(address) && warning.contains("it is in force again"), "{warning}");
    assert_eq!(world.status()["missing"], serde_json::json!([]));
    let shown = World::in_namespace(&world.client, "ip", &["-6", "addr", "show", "dev", "litz0"]).output().expect("ip");
    assert!(String::from_utf8_lossy(&shown.stdout).contains("fd76:6c69:747a::2/64"), "{shown:?}");

    // Its device goes while it is missing, and another one is made.
    disable(1);
    let warning = await_warning(&mut client);
    assert!(warning.contains(address) && warning.contains("cannot be made again"), "{warning}");
    ip(&format!("-n {} link del litz0", world.client));
    let warning = await_warning(&mut client);
    assert!(warning.contains(address) && warning.contains("not missed any more, because litz0 is gone"), "{warning}");
    client.wait_for("up");
    assert_eq!(world.status()["missing"], serde_json::json!([]));
    server.wait_for("client");

    // A server has the list, too.
    ip(&format!("netns exec {} sysctl -qw net.ipv6.conf.litz0.disable_ipv6=1", world.server));
    let warning = await_warning(&mut server);
    assert!(warning.contains("the address fd76:6c69:747a::1/64 of litz0"), "{warning}");
    let status = world.status_of(&world.server);
    let missing = status["missing"][0].as_str().expect("text");
    assert!(missing.contains("the address fd76:6c69:747a::1/64 of litz0"), "{status}");
    World::end(client, server);
}

/// The next warning of a change of the network.
fn await_warning(litz: &mut Litz) -> String {
    loop {
        let warning = litz.wait_for("warning");
        if warning["kind"] == "network_changed" {
            return warning["message"].as_str().expect("text").to_owned();
        }
    }
}

#[test]
fn a_change_that_cannot_be_undone_is_told_and_stays_known_until_it_is_undone() {
    let Some(world) = World::new("undone", 1, &["nft", "python3"]) else { return };
    give_default_routes(&world);
    let (mut server, ticket) = world.serve(&[]);
    let before = rules(&world);
    // A program that refuses as soon as a file is there.
    let (folder, refuses) = (world.path("programs"), world.path("refuses"));
    std::fs::create_dir(&folder).expect("a folder");
    let nft = path_of("nft").expect("it is there");
    write_program(&folder, &format!("[ -e {} ] && exit 1\nexec {} \"$@\"", refuses.display(), nft.display()));
    let with_path = |path: &str, arguments: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &world.client, "env", &format!("PATH={path}")]);
        command.args([env!("CARGO_BIN_EXE_litz"), "tunnel"]).args(arguments);
        command.env("RUNTIME_DIRECTORY", world.path("run-true"));
        command
    };
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let state = format!("--state-dir={}", world.path("state-true").display());
    let up = || Litz::of(&mut with_path(&path, &["up", "--all", "--kill-switch", &state, "--json", &ticket]));
    let run = |path: &str, arguments: &[&str]| {
        let output = with_path(path, arguments).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text)
    };
    for is_killed in [false, true] {
        let mut client = up();
        client.wait_for("up");
        server.wait_for("client");
        std::fs::write(&refuses, "").expect("a file");
        if is_killed {
            client.kill();
        } else {
            client.signal("TERM");
            client.fail(2, "packets outside the tunnel are still refused (--kill-switch): `nft` failed");
        }
        for _ in 0..2 {
            let (status, text) = run(&path, &["down"]);
            assert_eq!(status, Some(2), "{text}");
            assert!(
                text.contains("packets outside the tunnel are still refused (--kill-switch): `nft` failed"),
                "{text}"
            );
        }
        let (status, text) = run(&path, &["status"]);
        assert!(status == Some(2) && text.contains("`litz tunnel down` ends that"), "{text}");
        // Nothing else is left, and no packet leaves.
        let left = rules(&world);
        assert!(left.contains("litz_kill_switch") && !left.contains("proto 108"), "{left}");
        assert!(!try_outside(&world, "refused"));
        std::fs::remove_file(&refuses).expect("it is there");
        // Not all users and services have the folders for administrators in their PATH.
        let (status, text) = run("/usr/bin:/bin", &["down"]);
        assert_eq!(status, Some(0), "{text}");
        assert_eq!(rules(&world), before);
        assert!(try_outside(&world, "undone"));
    }
}

/// Writes a program named `nft` into a folder: a script of the shell.
fn write_program(folder: &Path, script: &str) {
    let path = folder.join("nft");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
}

#[test]
fn the_status_names_a_kill_switch_that_a_command_has_left_also_beside_another_tunnel() {
    let Some(world) = World::new("left", 1, &["nft"]) else { return };
    let (mut server, ticket) = world.serve(&["--listen=:4433"]);
    server.kill();
    // It fails, and removes its socket.
    let mut failed = world.litz(&world.client, &["up", "--all", "--kill-switch", "--tun=vpn0", &ticket]);
    failed.fail(2, "Packets outside the tunnel are still refused (--kill-switch)");
    let status = |arguments: &[&str]| {
        let output = world.command(&world.client).arg("status").args(arguments).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text)
    };
    let remedy = "refused (--kill-switch): `litz tunnel down --tun vpn0` ends that";
    let (code, text) = status(&[]);
    assert!(code == Some(2) && text.contains(remedy), "{text}");

    (server, _) = world.serve(&["--listen=:4433"]);
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    let (code, text) = status(&[]);
    assert!(code == Some(0) && text.starts_with("litz0 (client, up)") && text.contains(remedy), "{text}");
    let (code, text) = status(&["--json"]);
    let shown: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    let states: Vec<_> = shown.iter().map(|status| (&status["device"], &status["state"])).collect();
    assert_eq!((code, states), (Some(0), vec![(&"litz0".into(), &"up".into()), (&"vpn0".into(), &"failed".into())]));
    assert!(shown[1]["reason"].as_str().is_some_and(|reason| reason.contains(remedy)), "{text}");

    let down = world.command(&world.client).args(["down", "--tun=vpn0"]).output().expect("it starts");
    assert!(down.status.success(), "{down:?}");
    assert!(!status(&[]).1.contains("vpn0"));
    World::end(client, server);
}

#[test]
fn a_kill_switch_is_refused_where_nftables_is_missing_and_nothing_is_changed() {
    let Some(world) = World::new("nonft", 1, &["nft"]) else { return };
    let (_server, ticket) = world.serve(&[]);
    let before = rules(&world);
    let folder = world.path("programs");
    std::fs::create_dir(&folder).expect("a folder");
    let state = format!("--state-dir={}", world.path("state-true").display());
    // Where `ip netns exec` has made mounts of its own.
    let hide = "for hidden in /usr/local/sbin /usr/sbin /sbin; do [ ! -d $hidden ] || mount -t tmpfs none $hidden; done
                PATH=$0 exec \"$@\"";
    for (program, words) in [
        (None, "cannot run `nft`: No such file or directory (os error 2)): install the package nftables"),
        (Some("echo 'netlink: Operation not supported' >&2\nexit 1"), "use a kernel that has nftables"),
    ] {
        if let Some(script) = program {
            write_program(&folder, script);
        }
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &world.client, "sh", "-c", hide]).arg(&folder);
        command.args([env!("CARGO_BIN_EXE_litz"), "tunnel", "up", "--all", "--kill-switch", &state, "--json", &ticket]);
        Litz::of(command.env("RUNTIME_DIRECTORY", world.path("run-true"))).fail(2, words);
        assert_eq!(rules(&world), before);
    }
}

#[test]
fn a_kill_switch_of_a_command_with_a_capability_of_its_file_is_refused_with_what_helps() {
    let Some(world) = World::new("filecap", 1, &["nft", "setpriv"]) else { return };
    let program = world.path_for_all("litz");
    std::fs::copy(env!("CARGO_BIN_EXE_litz"), &program).expect("a copy");
    // `struct vfs_cap_data` of version 2 (linux/capability.h), effective: CAP_NET_ADMIN (12) is
    // permitted.
    let words = [0x0200_0001_u32, 1 << 12, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(&program, "security.capability", &value, flags) {
        return skipped(&format!("files of the temporary folder have no capabilities: {error}"));
    }
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &world.client, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(&program).args(["tunnel", "up", "--all", "--kill-switch", "--json", "litz1"]);
    Litz::of(&mut command).fail(2, "AmbientCapabilities=CAP_NET_ADMIN");
}
