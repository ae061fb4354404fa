//! Known programs under `litz run`, as clients and as servers. Each checks its bytes. A program that is
//! missing is skipped.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::dynamic::skipped;
use super::run::{FAR, World, texts};
use super::*;
use crate::namespaces::Namespace;

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
    if programs.iter().all(|name| is_there(name)) { World::new() } else { None }
}

/// Whether a program is there; says that the test is skipped otherwise.
pub(super) fn is_there(name: &str) -> bool {
    let folders = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/usr/local/go/bin";
    let is_there = folders.split(':').any(|folder| Path::new(folder).join(name).is_file());
    if !is_there {
        skipped(name);
    }
    is_there
}

/// Waits until something listens.
fn wait_for(host: &Namespace, address: &str) {
    let address: SocketAddr = address.parse().expect("an address");
    while host.inside(|| TcpStream::connect(address)).is_err() {
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
