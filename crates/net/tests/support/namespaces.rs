//! Network namespaces for tests that need their own devices: created as root, removed at the end
//! and on failure.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of the harness")]

use std::fs::{File, read_to_string};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace with loopback up. Dropping it removes it with everything in it.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace whose name begins with `tag`.
    pub fn new(tag: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let namespace = Self { name: format!("litz-{tag}-{}-{number}", std::process::id()) };
        run(Command::new("ip").args(["netns", "add", &namespace.name]));
        namespace.ip("link set lo up");
        namespace
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip -n NAMESPACE ARGUMENTS`; fails the test on an error.
    pub fn ip(&self, arguments: &str) {
        run(Command::new("ip").args(["-n", &self.name]).args(arguments.split_whitespace()));
    }

    /// Adds a device that is down and not connected to a host. Its other end, `NAME-end`, is up.
    pub fn add_device(&self, name: &str) {
        self.ip(&format!("link add name {name} type veth peer name {name}-end"));
        self.ip(&format!("link set {name}-end up"));
    }

    /// Waits until these devices have a carrier. The kernel reports it from a work queue, up to a
    /// second after "up" when other devices come and go.
    pub fn wait_for_carrier(&self, devices: &[&str]) {
        let clock = net::MonotonicClock::start();
        loop {
            let table = self.inside(net::interfaces).expect("the table of interfaces");
            let is_running = |device: &&str| table.iter().any(|found| found.name == **device && found.is_running);
            if devices.iter().all(is_running) {
                return;
            }
            assert!(clock.now().since_start() < units::Duration::from_secs(60), "no carrier: {table:?}");
            std::thread::yield_now();
        }
    }

    /// Sets `net.KEY`.
    pub fn set(&self, key: &str, value: &str) {
        let path = format!("/proc/sys/net/{}", key.replace('.', "/"));
        self.inside(|| std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}")));
    }

    /// Returns a command that runs inside the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs `work` like [`inside`].
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.name, work)
    }

    /// Returns a counter of one of its devices, such as `rx_packets`, read inside the namespace.
    pub fn counter(&self, device: &str, counter: &str) -> u64 {
        // /sys shows the namespace in which it was mounted, /proc/thread-self/net that of the
        // thread.
        let table = self.inside(|| read_to_string("/proc/thread-self/net/dev").expect("the table of devices"));
        let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{device}:"))).expect("the device");
        let column = match counter {
            "rx_packets" => 1,
            "tx_packets" => 9,
            other => panic!("{other} is not read here"),
        };
        line.split_whitespace().nth(column).and_then(|number| number.parse().ok()).expect("a number")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Errors during cleanup are ignored.
        let _removed = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// Runs `work` on a new thread inside a namespace; sockets that it opens stay inside.
pub fn inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{name}")).expect("the namespace");
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter");
            work()
        });
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Two hosts with two devices each, all four in one subnet:
///
/// ```text
///   left                           hub                         right
///   l1  10.77.0.1  fd77::1  ──┐           ┌──  10.77.0.11  fd77::11  r1
///                             ├─ bridge0 ─┤
///   l2  10.77.0.2  fd77::2  ──┘           └──  10.77.0.12  fd77::12  r2
/// ```
pub struct OneSubnet {
    pub left: Namespace,
    pub right: Namespace,
    pub hub: Namespace,
}

impl OneSubnet {
    /// Creates the hosts. Each device answers ARP for its own addresses only: by default Linux lets
    /// every device of a host answer for all of them.
    pub fn new() -> Self {
        let world = Self { left: Namespace::new("left"), right: Namespace::new("right"), hub: Namespace::new("hub") };
        world.hub.ip("link add name bridge0 type bridge forward_delay 0");
        world.hub.ip("link set bridge0 up");
        for (namespace, cards) in
            [(&world.left, [("l1", "1"), ("l2", "2")]), (&world.right, [("r1", "11"), ("r2", "12")])]
        {
            namespace.set("ipv4.conf.all.arp_ignore", "1");
            namespace.set("ipv4.conf.all.arp_announce", "2");
            for (card, last) in cards {
                namespace.ip(&format!("link add name {card} type veth peer name h{card} netns {}", world.hub.name()));
                world.hub.ip(&format!("link set h{card} master bridge0 up"));
                namespace.ip(&format!("addr add 10.77.0.{last}/24 dev {card}"));
                namespace.ip(&format!("addr add fd77::{last}/64 dev {card} nodad"));
                namespace.ip(&format!("link set {card} up"));
            }
        }
        world.left.wait_for_carrier(&["l1", "l2"]);
        world.right.wait_for_carrier(&["r1", "r2"]);
        world
    }
}

/// Returns whether tests of this kind can run; prints the reason if not.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
pub fn available() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let has_ip = Command::new("ip").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if !is_root || !has_ip {
        eprintln!("skipped: network namespaces need root and iproute2");
    }
    is_root && has_ip
}

fn run(command: &mut Command) {
    let output = command.output().expect("ip runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
