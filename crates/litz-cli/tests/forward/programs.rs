//! Known programs under `litz run`, as clients and as servers. Each checks its bytes. A program that is
//! missing is skipped.

use std::process::{Child, Command, Stdio};

use super::run::{FAR, World, texts};
use super::*;
use crate::namespaces::Namespace;
use crate::support::needs::{has_programs, skipped};
use crate::support::ssh;

/// A server that runs until this is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already. `litz run` passes SIGTERM on.
        let _told = Command::new("kill").arg(self.0.id().to_string()).stderr(Stdio::null()).status();
        let _reaped = self.0.wait();
    }
}

/// A world in which these programs are.
fn world(programs: &[&str]) -> Option<World> {
    if has_programs(programs) { World::new() } else { None }
}

/// Waits until something listens.
fn wait_for(host: &Namespace, address: &str) {
    let address: SocketAddr = address.parse().expect("an address");
    // A connection that says nothing would be the only client of a server that takes one at a time.
    let ends_with = format!(":{:04X}", address.port());
    let listens = |table: &str| {
        let lines = std::fs::read_to_string(table).expect("the table of sockets");
        lines.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let is_local = fields.next().is_some_and(|local| local.ends_with(&ends_with));
            is_local && fields.nth(1) == Some("0A")
        })
    };
    while !host.inside(|| ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].into_iter().any(listens)) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A server of the far host.
fn far_server(world: &World, arguments: &[&str], address: &str) -> Server {
    let mut command = world.far.command(arguments[0]);
    let command = command.args(&arguments[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Server(command.spawn().expect("it starts"));
    wait_for(&world.far, address);
    server
}

/// A server of the near host that the far one can reach on port 8080.
fn published(world: &World, arguments: &[&str]) -> Server {
    let mut command = world.command_with(&["--quiet", "--publish", "8080"], arguments);
    let server = Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"));
    wait_for(&world.near, "127.0.0.1:8080");
    server
}

/// A program of the far host, which must succeed.
fn far(world: &World, arguments: &[&str]) -> Vec<u8> {
    let output = world.far.command(arguments[0]).args(&arguments[1..]).output().expect("it starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A program of the near host, which must succeed.
fn near(world: &World, arguments: &[&str]) -> String {
    let (status, output, errors) = world.run(arguments);
    assert_eq!(status, 0, "{arguments:?}: {output}{errors}");
    output
}

fn file(world: &World, name: &str, text: &str) -> String {
    let path = world.place.path(name);
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("a plain path").to_owned()
}

#[test]
fn nginx_serves_far_clients() {
    let Some(world) = world(&["nginx", "curl"]) else { return };
    let root = world.place.root.path().display().to_string();
    let config = file(
        &world,
        "nginx.conf",
        &format!(
            "user root; daemon off; master_process off; pid {root}/pid; error_log /dev/null; events {{}}
            http {{ access_log {root}/access; root {root}/out; server {{ listen 8080; }} }}"
        ),
    );
    let page = world.place.file("page", 2_000_000, 1);
    let _server = published(&world, &["nginx", "-c", &config]);
    let got = far(&world, &["curl", "-sS", "-m", "60", "http://127.0.0.1:8080/page", "http://127.0.0.1:8080/page"]);
    let page = std::fs::read(page).expect("a file");
    assert!(got == [page.as_slice(), page.as_slice()].concat(), "{} bytes", got.len());
}

#[test]
fn rsync_copies_from_a_far_daemon() {
    let Some(world) = world(&["rsync"]) else { return };
    let root = world.place.root.path().display().to_string();
    let text = format!("uid = root\ngid = root\nuse chroot = no\n[out]\npath = {root}/out\n");
    let config = file(&world, "rsyncd.conf", &text);
    let sent = world.place.file("a/b", 3_000_000, 2);
    let config = format!("--config={config}");
    let _server = far_server(&world, &["rsync", "--daemon", "--no-detach", "--port=873", &config], "127.0.0.1:873");
    near(&world, &["rsync", "-a", "--timeout=60", &format!("rsync://{FAR}/out/"), &format!("{root}/in/")]);
    crate::support::assert_same(&sent, &world.place.inbox().join("a/b"));
}

#[test]
fn redis_is_used_and_served() {
    let Some(world) = world(&["redis-server", "redis-cli"]) else { return };
    let serve = ["redis-server", "--save", "", "--protected-mode", "no", "--bind", "0.0.0.0", "--port"];
    let value = "v".repeat(100_000);
    let _far = far_server(&world, &[&serve[..], &["6379"]].concat(), "127.0.0.1:6379");
    let client = ["redis-cli", "-h", FAR];
    assert_eq!(near(&world, &[&client[..], &["set", "key", &value]].concat()), "OK\n");
    assert_eq!(near(&world, &[&client[..], &["get", "key"]].concat()), format!("{value}\n"));
    let _near = published(&world, &[&serve[..], &["8080"]].concat());
    let client = ["redis-cli", "-h", "127.0.0.1", "-p", "8080"];
    assert_eq!(far(&world, &[&client[..], &["set", "key", &value]].concat()), b"OK\n");
    assert_eq!(far(&world, &[&client[..], &["get", "key"]].concat()), format!("{value}\n").into_bytes());
}

#[test]
fn ssh_logs_in_on_a_far_host_and_rsync_copies_over_it() {
    let Some(world) = world(&[&ssh::PROGRAMS[..], &["cmp"]].concat()) else { return };
    let path = |name: &str| world.place.path(name).to_str().expect("a plain path").to_owned();
    let (of_server, config) = ssh::configure(&world.place.path(""));
    let _server = far_server(&world, &["/usr/sbin/sshd", "-D", "-f", &of_server], "127.0.0.1:22");
    let sent = world.place.file("a/b", 3_000_000, 3);
    let shown = sent.display();
    // Both directions at the same time, and the status of the far command.
    let script = format!("ssh -F {config} {FAR} cat <{shown} | cmp - {shown} && ssh -F {config} {FAR} exit 7");
    let (status, output, errors) = world.run(&["bash", "-c", &script]);
    assert_eq!((status, &*output), (7, ""), "{errors}");
    let (from, to) = (format!("{FAR}:{}/", path("out")), format!("{}/", path("in")));
    near(&world, &["rsync", "-a", "--timeout=60", "-e", &format!("ssh -F {config}"), &from, &to]);
    crate::support::assert_same(&sent, &world.place.inbox().join("a/b"));
}

/// The bytes that a client of iperf3 says that it has sent, and that have arrived.
fn iperf3_bytes(output: &[u8]) -> [Option<u64>; 2] {
    let report: Value = serde_json::from_slice(output).expect("a report");
    ["sum_sent", "sum_received"].map(|sum| report["end"][sum]["bytes"].as_u64())
}

#[test]
fn iperf3_measures_a_far_server_and_is_measured() {
    for more in [&["-P", "2"][..], &["-R"]] {
        // Each run has servers of its own: one that serves several closes its port after each, and resets a
        // client that comes then.
        let Some(world) = world(&["iperf3"]) else { return };
        let _far = far_server(&world, &["iperf3", "-s"], "127.0.0.1:5201");
        let _near = published(&world, &["iperf3", "-s", "-p", "8080"]);
        let arguments = ["-n", "20M", "-J"];
        let output = near(&world, &[&["iperf3", "-c", FAR][..], &arguments, more].concat());
        let far_output = far(&world, &[&["iperf3", "-c", "127.0.0.1", "-p", "8080"][..], &arguments, more].concat());
        for output in [output.into_bytes(), far_output] {
            let [sent, arrived] = iperf3_bytes(&output);
            // A receiver counts until the sender says that it has ended, when much is still on its way: on a busy
            // machine nearly all.
            assert!(sent >= Some(20 << 20) && arrived > Some(0), "{sent:?} {arrived:?} {more:?}");
        }
    }
}

/// Where the programs of PostgreSQL are: Debian has those of each version in a folder of its own.
fn postgres_folder() -> Option<std::path::PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin")).find(|folder| folder.join("postgres").is_file());
    if found.is_none() {
        skipped("the program postgres is missing (scripts/need installs it)");
    }
    found
}

#[test]
fn postgresql_is_used_and_served() {
    let Some(folder) = postgres_folder() else { return };
    let Some(world) = world(&["psql", "setpriv"]) else { return };
    let program = |name: &str| folder.join(name).to_str().expect("a plain path").to_owned();
    let (postgres, initdb) = (program("postgres"), program("initdb"));
    // It does not run as root.
    let other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    std::fs::set_permissions(world.place.root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("it is ours");
    let data = world.place.path("data");
    std::fs::create_dir(&data).expect("a folder");
    std::os::unix::fs::chown(&data, Some(65534), Some(65534)).expect("root");
    let data = data.to_str().expect("a plain path").to_owned();
    let made = [&other[..], &[&initdb, "-D", &data, "-U", "postgres", "-A", "trust", "--no-sync", "--locale=C"]];
    far(&world, &made.concat());
    let rules = std::path::Path::new(&data).join("pg_hba.conf");
    std::fs::write(rules, "host all all 0.0.0.0/0 trust\n").expect("a file");
    let more = ["-c", "listen_addresses=0.0.0.0", "-c", "fsync=off", "-c", "unix_socket_directories="];
    let serve = |port| [&other[..], &[&postgres, "-D", &data, "-p", port], &more].concat();
    // It gets some megabytes, and gives them back.
    let script = "create table t (n int, x text); insert into t select i, repeat(md5(i::text), 100) \
                  from generate_series(1, 1000) i; select n, x from t order by n";
    let read = "select n, x from t order by n";
    let ask = |host, port, text| ["psql", "-XAtq", "-h", host, "-p", port, "-U", "postgres", "-c", text];
    let written = {
        let _server = far_server(&world, &serve("5432"), "127.0.0.1:5432");
        far_until_ready(&world, &ask("127.0.0.1", "5432", "select 1"));
        let written = near(&world, &ask(FAR, "5432", script));
        assert_eq!(written.lines().count(), 1000);
        assert!(far(&world, &ask("127.0.0.1", "5432", read)) == written.as_bytes(), "the table is another one");
        written
    };
    // The same data, served by the near host.
    let _server = published(&world, &serve("8080"));
    far_until_ready(&world, &ask("127.0.0.1", "8080", "select 1"));
    assert!(far(&world, &ask("127.0.0.1", "8080", read)) == written.as_bytes(), "the table is another one");
    let peer = far(&world, &ask("127.0.0.1", "8080", "select host(inet_client_addr())"));
    assert_eq!(peer, b"127.0.0.1\n");
}

/// Waits until a server does what is asked: it may still start.
fn far_until_ready(world: &World, arguments: &[&str]) {
    let is_ready = || {
        let output = world.far.command(arguments[0]).args(&arguments[1..]).output().expect("it starts");
        output.status.success()
    };
    while !is_ready() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A server that says where its clients come from, and sends back what it gets.
const GO_SERVER: &str = r#"package main

import ("fmt"; "io"; "net"; "os")

func main() {
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil { fmt.Println(err); os.Exit(1) }
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil { fmt.Println(err); os.Exit(1) }
		go func() { io.Copy(c, c); fmt.Println(c.RemoteAddr()); c.Close() }()
	}
}
"#;

#[test]
fn a_static_server_of_go_sees_the_addresses_of_far_programs() {
    let Some(world) = world(&["go"]) else { return };
    let program = build_go(&world, GO_SERVER);
    let mut command = world.command_with(&["--publish", "8080"], &[&program, ":8080"]);
    let mut server = Server(command.stderr(Stdio::inherit()).spawn().expect("it starts"));
    let output = std::io::BufReader::new(server.0.stdout.take().expect("piped"));
    let mut lines = std::io::BufRead::lines(output).map(|line| line.expect("text"));
    assert_eq!(lines.next().as_deref(), Some("ready"));
    for (seed, address) in ["127.0.0.1:8080", "[::1]:8080"].into_iter().enumerate() {
        let stream = world.far.inside(|| connect(address.parse().expect("an address")));
        let own = stream.local_addr().expect("a socket");
        assert_echo(stream, 300_000, seed as u64);
        assert_eq!(lines.next(), Some(own.to_string()));
    }
}

/// Static, with its own resolver and system calls.
const GO: &str = r#"package main

import ("bytes"; "fmt"; "io"; "net"; "os")

func main() {
	c, err := net.Dial("tcp", os.Args[1])
	if err != nil { fmt.Println(err); os.Exit(1) }
	if c.RemoteAddr().String() != os.Args[1] { fmt.Println(c.RemoteAddr()); os.Exit(1) }
	data := bytes.Repeat([]byte("0123456789"), 100000)
	go func() { c.Write(data); c.(*net.TCPConn).CloseWrite() }()
	answer, err := io.ReadAll(c)
	fmt.Println(err, bytes.Equal(answer, data))
}
"#;

/// Builds a static program; returns its path.
pub(super) fn build_go(world: &World, source: &str) -> String {
    let (source, program) = (file(world, "main.go", source), world.place.path("program"));
    let mut build = Command::new("go");
    build.env("CGO_ENABLED", "0").args(["build", "-o"]).arg(&program).arg(source);
    let (status, _, errors) = texts(build.output().expect("it is there"));
    assert_eq!(status, 0, "{errors}");
    program.to_str().expect("a plain path").to_owned()
}

#[test]
fn a_static_program_of_go_connects() {
    let Some(world) = world(&["go"]) else { return };
    let program = build_go(&world, GO);
    let port = world.serve(FAR, super::run::echo);
    assert_eq!(near(&world, &[&program, &format!("{FAR}:{port}")]), "<nil> true\n");
    let (status, output, _) = world.run(&[&program, &format!("{FAR}:1")]);
    assert!(status == 1 && output.contains("connection refused"), "{status} {output}");
}
