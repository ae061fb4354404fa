//! [`World`]: two namespaces, the emulated link between them, and programs that run there.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use emulate::{Namespace, Running, Side, TunLink, Tunnels};
use netem::LinkConfig;
use tempfile::TempDir;
use units::{Rate, Ratio, Rng};

use crate::support::needs::{has_programs, has_root, path_of, skipped_by_the_kernel};

/// A program that has not ended after so many seconds hangs.
const PROGRAM_SECONDS_MAX: &str = "100";

/// The addresses of the namespace `remote`.
pub(super) const REMOTE: [&str; 2] = ["10.77.0.2", "fd77::2"];

/// Whether a test can run: with root, and all of `programs`. Says why not.
fn can_run(programs: &[&str]) -> bool {
    has_root() && has_programs(programs)
}

/// A link with these faults: a share of a thousand packets each.
pub(super) fn faulty(loss: u64, reorder: u64, duplicate: u64) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_mbps(400)),
        delay: units::Duration::from_millis(2),
        loss: Ratio::new(loss, 1000),
        reorder: Ratio::new(reorder, 1000),
        reorder_by: units::Duration::from_millis(3),
        duplicate: Ratio::new(duplicate, 1000),
        ..LinkConfig::default()
    }
}

/// Where a program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Host,
    Remote,
}

pub(super) struct World {
    host: Namespace,
    remote: Namespace,
    folder: TempDir,
    /// None for a veth pair, which ends with its namespaces.
    _link: Option<Running>,
}

impl World {
    /// A link with `config` in both directions; the kernel's sockets use `congestion`. `None` if the
    /// test is skipped: without root, or without one of `programs`.
    pub(super) fn new(programs: &[&str], seed: u64, config: &LinkConfig, congestion: &str) -> Option<Self> {
        if !can_run(programs) {
            return None;
        }
        let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").expect("Linux");
        if !known.split_whitespace().any(|name| name == congestion) {
            skipped_by_the_kernel(&format!("congestion control named {congestion}"));
            return None;
        }
        let [host, remote] = Namespace::create_pair("litz-programs").expect("namespaces");
        let side = |namespace: &Namespace, addresses: [&str; 2]| Side {
            namespace: Some(namespace.name().to_owned()),
            addresses: addresses.map(|address| address.parse().expect("an address")).into(),
        };
        let link = TunLink {
            name: "l0".into(),
            left: side(&host, ["10.77.0.1/24", "fd77::1/64"]),
            right: side(&remote, ["10.77.0.2/24", "fd77::2/64"]),
            mtu: 1500,
            forward: config.clone(),
            backward: config.clone(),
        };
        let link = Tunnels::start(vec![link], seed).expect("a link");
        let world = Self { host, remote, folder: TempDir::new().expect("a folder"), _link: Some(link) };
        for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            world.succeed(Place::Host, "sysctl", &["-qw", setting], &[]);
        }
        // For the connections to the stack: a namespace may only choose among what the system allows all
        // of its users, a route among all that there is.
        let route = |family: &str, network: &str, via: &str| {
            let arguments = [family, "route", "add", network, "via", via, "congctl", congestion];
            world.succeed(Place::Remote, "ip", &arguments, &[]);
        };
        route("-4", "10.66.0.0/16", "10.77.0.1");
        route("-6", "fd66::/16", "fd77::1");
        Some(world)
    }

    /// A veth pair without faults: `ours` without addresses in the namespace `host`, `theirs` in `remote`
    /// with the addresses of the kernel for device 0. `None` if the test is skipped.
    pub(super) fn on_a_veth(programs: &[&str]) -> Option<Self> {
        if !can_run(programs) {
            return None;
        }
        let [host, remote] = Namespace::create_pair("litz-veth").expect("namespaces");
        let world = Self { host, remote, folder: TempDir::new().expect("a folder"), _link: None };
        let ip = |place, arguments: &str| {
            world.succeed(place, "ip", &arguments.split(' ').collect::<Vec<_>>(), &[]);
        };
        let remote = world.remote.name();
        ip(Place::Host, &format!("link add ours type veth peer name theirs netns {remote}"));
        let [v4, v6] = kernel_addresses(0);
        ip(Place::Remote, &format!("address add {v4}/24 dev theirs"));
        ip(Place::Remote, &format!("address add {v6}/64 dev theirs nodad"));
        ip(Place::Remote, "link set theirs up");
        ip(Place::Host, "link set ours up");
        Some(world)
    }

    pub(super) fn namespace(&self, place: Place) -> &Namespace {
        match place {
            Place::Host => &self.host,
            Place::Remote => &self.remote,
        }
    }

    /// A path in the folder of this world.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file of random bytes.
    pub(super) fn file(&self, name: &str, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Rng::from_seed(len as u64).fill(&mut bytes);
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("below the folder")).expect("folders");
        std::fs::write(path, &bytes).expect("a file");
        bytes
    }

    pub(super) fn text(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// A program in a namespace, which is killed if it hangs.
    pub(super) fn command(&self, place: Place, program: &str) -> Command {
        let mut command = Command::new("timeout");
        let program = path_of(program).unwrap_or_else(|| program.into());
        command.args(["-k", "1", PROGRAM_SECONDS_MAX, "ip", "netns", "exec", self.namespace(place).name()]);
        command.arg(program).current_dir(self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a program to its end.
    pub(super) fn run(&self, place: Place, program: &str, arguments: &[&str], input: &[u8]) -> Output {
        finish(self.command(place, program).args(arguments).spawn().expect("it starts"), input)
    }

    /// The same for a program that must succeed; returns its output.
    pub(super) fn succeed(&self, place: Place, program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let output = self.run(place, program, arguments, input);
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}\n{}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout[..output.stdout.len().min(2000)])
        );
        output.stdout
    }

    /// Starts a server, and waits until it accepts connections to `address`.
    pub(super) fn serve(&self, place: Place, program: &str, arguments: &[&str], address: &str) -> Server {
        self.serve_until(place, program, arguments, || self.accepts(place, address))
    }

    /// Starts a server of one connection, and waits until it listens on `port`.
    pub(super) fn serve_one(&self, place: Place, program: &str, arguments: &[&str], port: u16) -> Server {
        let wanted = format!("sport = :{port}");
        let listens = || !self.succeed(place, "ss", &["-Hltn", &wanted], &[]).is_empty();
        self.serve_until(place, program, arguments, listens)
    }

    fn serve_until(&self, place: Place, name: &str, arguments: &[&str], is_ready: impl Fn() -> bool) -> Server {
        let program = path_of(name).expect("it was looked for");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.namespace(place).name()]).arg(program).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir(self.folder.path());
        let mut server = Server(command.spawn().expect("it starts"));
        while !is_ready() {
            assert!(server.0.try_wait().expect("a child").is_none(), "{name} {arguments:?} has ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    fn accepts(&self, place: Place, address: &str) -> bool {
        let address: SocketAddr = address.parse().expect("an address");
        let connect = move || TcpStream::connect(address).is_ok();
        self.namespace(place).run(connect).expect("a thread").join().expect("no panic").expect("in the namespace")
    }

    /// Starts `litz tcp` with a device of its own. Nothing else has the ends of its pipes, so what it
    /// closes has an end.
    pub(super) fn litz(&self, number: u32, arguments: &[&str]) -> Child {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.host.name(), env!("CARGO_BIN_EXE_litz"), "tcp"]);
        command.args(arguments).args(device_options(number));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("litz starts")
    }
}

/// The options of `litz tcp` for device `number`.
pub(super) fn device_options(number: u32) -> Vec<String> {
    let [v4, v6] = stack_addresses(number);
    let [kernel_v4, kernel_v6] = kernel_addresses(number);
    let options = [
        ("--device", format!("t{number}")),
        ("--kernel", format!("{kernel_v4}/24")),
        ("--kernel", format!("{kernel_v6}/64")),
        ("--address", v4.to_string()),
        ("--address", v6.to_string()),
    ];
    options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// The addresses of the stack on device `number`.
pub(super) fn stack_addresses(number: u32) -> [IpAddr; 2] {
    [format!("10.66.{number}.2"), format!("fd66:{number}::2")].map(|text| text.parse().expect("an address"))
}

/// The kernel's.
pub(super) fn kernel_addresses(number: u32) -> [IpAddr; 2] {
    [format!("10.66.{number}.1"), format!("fd66:{number}::1")].map(|text| text.parse().expect("an address"))
}

/// Fails if what has arrived is not what was sent, and says where they differ.
pub(super) fn assert_same(arrived: &[u8], sent: &[u8], context: &str) {
    let differs = arrived.iter().zip(sent).position(|(one, other)| one != other);
    let (arrived_len, sent_len) = (arrived.len(), sent.len());
    assert!(arrived == sent, "{context}: {arrived_len} of {sent_len} bytes, the first wrong one: {differs:?}");
}

/// An address with a port, as programs take it.
pub(super) fn with_port(address: &str, port: u16) -> String {
    SocketAddr::new(address.parse().expect("an address"), port).to_string()
}

/// Gives `input` and its end to a program, and waits for the program's.
pub(super) fn finish(mut child: Child, input: &[u8]) -> Output {
    let mut stdin = child.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        // A program that fails early does not read its input.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("it ends")
    })
}

/// A program that runs until this is dropped.
pub(super) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}
