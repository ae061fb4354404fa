//! `litz tcp` as a user runs it, in a network namespace of its own, with programs of the kernel's stack
//! as peers. Skipped without root.
#![expect(clippy::disallowed_methods, reason = "stands for programs of the kernel's stack")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use emulate::Namespace;

use crate::support::needs::has_root;

const KERNEL: &str = "10.66.0.1";
const STACK: &str = "10.66.0.2";

/// `None` without root: the test is skipped.
fn namespace(name: &str) -> Option<Namespace> {
    has_root().then(|| Namespace::create(&format!("litz-tcp-{name}-{}", std::process::id())).expect("a namespace"))
}

/// Runs `litz tcp` in the namespace.
fn litz(namespace: &Namespace, arguments: &[&str]) -> Child {
    Command::new("ip")
        .args(["netns", "exec", namespace.name(), env!("CARGO_BIN_EXE_litz"), "tcp"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("litz starts")
}

/// Gives `input` to the command, and returns its status, its output and what it says.
fn run(mut litz: Child, input: Vec<u8>) -> (i32, Vec<u8>, String) {
    let mut stdin = litz.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = litz.wait_with_output().expect("litz ends");
    // A command that fails early does not read its input.
    let _written = writer.join().expect("no panic");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("an exit status"), output.stdout, said)
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    units::Rng::from_seed(seed).fill(&mut bytes);
    bytes
}

/// Sends `bytes` and its end, and reads to the end of the peer.
fn exchange(mut stream: TcpStream, bytes: Vec<u8>) -> Vec<u8> {
    let mut reader = stream.try_clone().expect("a descriptor");
    let writer = std::thread::spawn(move || {
        stream.write_all(&bytes).expect("the peer reads");
        stream.shutdown(Shutdown::Write).expect("connected");
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).expect("the peer finishes");
    writer.join().expect("written");
    received
}

#[test]
fn a_program_of_the_kernel_connects_to_the_stack() {
    let Some(namespace) = namespace("listen") else { return };
    connects_to_the_stack(&namespace, &["--device", "t0"]);
}

#[test]
fn the_stack_is_a_host_on_an_ethernet_link() {
    let Some(namespace) = namespace("tap") else { return };
    connects_to_the_stack(&namespace, &["--device", "t0", "--tap", "--mtu", "atm"]);
}

#[test]
fn the_stack_is_a_host_on_the_link_of_an_interface() {
    let Some(namespace) = namespace("interface") else { return };
    for arguments in [
        "link add ours type veth peer name theirs",
        "address add 10.66.0.1/24 dev theirs",
        "link set theirs up",
        "link set ours up",
    ] {
        let mut command = Command::new("ip");
        command.args(["-n", namespace.name()]).args(arguments.split(' '));
        assert!(command.status().expect("ip is installed").success(), "{arguments}");
    }
    let addresses = ["--kernel", "10.66.0.1/24", "--address", STACK];
    connects_to_the_stack(&namespace, &[&["--interface", "ours"], &addresses[..]].concat());
    let missing = litz(&namespace, &[&["connect", "10.66.0.1:9", "--interface", "none"], &addresses[..]].concat());
    let (status, _, said) = run(missing, Vec::new());
    assert!(status == 2 && said.contains("none") && said.contains("ip link"), "{said}");
}

fn connects_to_the_stack(namespace: &Namespace, options: &[&str]) {
    let (ours, theirs) = (pattern(3_000_000, 1), pattern(2_000_000, 2));
    let mut litz = litz(namespace, &[&["listen", "8080"], options].concat());
    let mut stderr = BufReader::new(litz.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains(&format!("{STACK}:8080")) {
        line.clear();
        assert!(stderr.read_line(&mut line).expect("text") > 0, "it ended early");
    }
    let bytes = theirs.clone();
    let peer = move || exchange(TcpStream::connect((STACK, 8080)).expect("connected"), bytes);
    let peer = namespace.run(peer).expect("a thread");
    let (status, output, _) = run(litz, ours.clone());
    assert_eq!(status, 0);
    assert!(output == theirs, "what the program sent goes to standard output");
    assert!(peer.join().expect("no panic").expect("in the namespace") == ours, "standard input goes to the program");
}

#[test]
fn the_stack_connects_to_a_program_of_the_kernel() {
    let Some(namespace) = namespace("connect") else { return };
    let (ours, theirs) = (pattern(3_000_000, 1), pattern(2_000_000, 2));
    for placement in ["thread", "inline"] {
        // Any address of the namespace, since the device is not there yet.
        let bind = || TcpListener::bind("0.0.0.0:0").expect("bound");
        let listener = namespace.run(bind).expect("a thread").join().expect("no panic").expect("in the namespace");
        let port = listener.local_addr().expect("bound").port();
        let bytes = theirs.clone();
        let peer = std::thread::spawn(move || exchange(listener.accept().expect("a client").0, bytes));
        let remote = format!("{KERNEL}:{port}");
        let folder = tempfile::tempdir().expect("a folder");
        let journals = folder.path().to_str().expect("a name");
        let options = ["connect", &remote, "--device", "t0", "--placement", placement, "--journal", journals];
        let (status, output, said) = run(litz(&namespace, &options), ours.clone());
        assert_eq!((status, said.as_str()), (0, ""), "{placement}");
        assert!(output == theirs && peer.join().expect("no panic") == ours, "{placement}");
        let replayed = Command::new(env!("CARGO_BIN_EXE_litz")).args(["replay", journals]).output().expect("it runs");
        assert!(replayed.status.success(), "{placement}: {replayed:?}");
        assert!(String::from_utf8_lossy(&replayed.stdout).contains("no differences"), "{placement}: {replayed:?}");
    }
}

/// As for ssh, whose connection it may be.
#[test]
fn bytes_without_an_end_of_line_and_the_end_are_passed_on_at_once() {
    let Some(namespace) = namespace("at-once") else { return };
    let bind = || TcpListener::bind("0.0.0.0:0").expect("bound");
    let listener = namespace.run(bind).expect("a thread").join().expect("no panic").expect("in the namespace");
    let remote = format!("{KERNEL}:{}", listener.local_addr().expect("bound").port());
    let mut litz = litz(&namespace, &["connect", &remote, "--device", "t0"]);
    let (mut peer, _) = listener.accept().expect("a client");
    let mut bytes = [0; 9];
    peer.write_all(b"one\ntwo: ").expect("connected");
    litz.stdout.as_mut().expect("a pipe").read_exact(&mut bytes).expect("it writes");
    assert_eq!(&bytes, b"one\ntwo: ");
    litz.stdin.as_mut().expect("a pipe").write_all(b"no").expect("it reads");
    peer.read_exact(&mut bytes[..2]).expect("it sends");
    // The end, too, while standard input is open.
    drop(peer);
    assert_eq!(litz.stdout.as_mut().expect("a pipe").read(&mut bytes).expect("a pipe"), 0);
    assert_eq!(run(litz, Vec::new()).0, 0);
}

/// Standard input stays open, as on a terminal.
#[test]
fn a_reset_ends_the_command_although_standard_input_stays_open() {
    let Some(namespace) = namespace("reset") else { return };
    let bind = || TcpListener::bind("0.0.0.0:0").expect("bound");
    let listener = namespace.run(bind).expect("a thread").join().expect("no panic").expect("in the namespace");
    let remote = format!("{KERNEL}:{}", listener.local_addr().expect("bound").port());
    let mut litz = litz(&namespace, &["connect", &remote, "--device", "t0"]);
    let mut stdin = litz.stdin.take().expect("a pipe");
    stdin.write_all(b"unread").expect("litz runs");
    let (peer, _) = listener.accept().expect("a client");
    peer.peek(&mut [0; 6]).expect("it has arrived");
    // The kernel resets a connection that is closed with unread data.
    drop(peer);
    let output = litz.wait_with_output().expect("litz ends");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "litz: the peer has reset the connection\n");
    drop(stdin);
}

#[test]
fn failures_say_what_to_do_and_have_their_status() {
    let Some(namespace) = namespace("fails") else { return };
    let fails = |arguments: &[&str]| {
        let (status, _, said) = run(litz(&namespace, arguments), Vec::new());
        (status, said)
    };
    let (status, said) = fails(&["connect", "10.66.0.1:9", "--device", "t0"]);
    assert_eq!(
        (status, said.as_str()),
        (1, "litz: cannot connect to 10.66.0.1:9: the peer has refused the connection\n")
    );
    let (status, said) = fails(&["connect", "10.66.0.1:9", "--device", "t0", "--address", "10.67.0.2"]);
    assert!(status == 2 && said.contains("10.67.0.2") && said.contains("--kernel"), "{said}");
    let (status, said) = fails(&["connect", "host:9", "--device", "t0"]);
    assert!(status == 2 && said.contains("10.66.0.1:80"), "{said}");
    let (status, said) = fails(&["listen", "80", "--device", "a-name-that-is-too-long"]);
    assert!(status == 2 && said.contains("too long"), "{said}");
}

#[test]
fn the_benchmark_measures_both_directions() {
    let Some(namespace) = namespace("bench") else { return };
    for placement in ["thread", "inline", "packet(2)"] {
        let arguments = ["bench", "--time", "1", "--json", "--device", "t0", "--placement", placement];
        let (status, output, said) = run(litz(&namespace, &arguments), Vec::new());
        assert_eq!((status, said.as_str()), (0, ""), "{placement}");
        let result: serde_json::Value = serde_json::from_slice(&output).expect("a JSON object");
        for key in ["to_kernel_bps", "from_kernel_bps"] {
            assert!(result[key].as_u64() > Some(1_000_000), "{placement}: {result}");
        }
        let packets = &result["packets"];
        assert!(packets["read"].as_u64() > Some(100) && packets["taken"].as_u64() > Some(100), "{placement}: {result}");
    }
}

/// The options of two channels, whose networks begin with `10.NET`.
fn two_channels(net: u8, device: &str) -> Vec<String> {
    let of_channel = |channel: u8| {
        let (kernel, stack) = (format!("10.{net}.{channel}.1/24"), format!("10.{net}.{channel}.2"));
        ["--kernel".to_owned(), kernel, "--address".to_owned(), stack]
    };
    let device = ["--device".to_owned(), device.to_owned()];
    (0..2).flat_map(of_channel).chain(device).collect()
}

#[test]
fn a_stream_over_two_channels_is_whole() {
    let Some(namespace) = namespace("channels") else { return };
    // The kernel forwards between the devices of sender and receiver.
    let forward = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    namespace.run(forward).expect("a thread").join().expect("no panic").expect("in the namespace").expect("root");
    let options = two_channels(67, "r");
    let arguments = ["receive", "8080"].into_iter().chain(options.iter().map(String::as_str)).collect::<Vec<_>>();
    let mut receiver = litz(&namespace, &arguments);
    let mut stderr = BufReader::new(receiver.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("10.67.1.2:8080") {
        line.clear();
        assert!(stderr.read_line(&mut line).expect("text") > 0, "it ended early");
    }
    let reading = std::thread::spawn(move || run(receiver, Vec::new()));
    let (bytes, options) = (pattern(5_000_000, 3), two_channels(66, "s"));
    let command = ["send", "10.67.0.2:8080", "10.67.1.2:8080", "--scheduling", "adaptive"];
    let arguments = command.into_iter().chain(options.iter().map(String::as_str)).collect::<Vec<_>>();
    let (status, _, said) = run(litz(&namespace, &arguments), bytes.clone());
    assert_eq!(status, 0, "{said}");
    let (status, received, _) = reading.join().expect("no panic");
    assert!(status == 0 && received == bytes, "{} bytes", received.len());
}

/// Two processes with security layers, whose devices the kernel connects.
struct Layered {
    namespace: Namespace,
    folder: tempfile::TempDir,
}

impl Layered {
    fn new(name: &str) -> Option<Self> {
        let namespace = namespace(name)?;
        let forward = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        namespace.run(forward).expect("a thread").join().expect("no panic").expect("in the namespace").expect("root");
        let folder = tempfile::tempdir().expect("a folder");
        for secret in [7, 8] {
            let path = folder.path().join(secret.to_string());
            std::fs::write(&path, [secret; 32]).expect("written");
            let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&path, owner_only).expect("our file");
        }
        Some(Self { namespace, folder })
    }

    fn litz(&self, command: [&str; 2], net: u8, stack: &str, secret: u8) -> Child {
        let (kernel, address) = (format!("10.{net}.0.1/24"), format!("10.{net}.0.2"));
        let (device, secret) = (format!("t{net}"), self.folder.path().join(secret.to_string()));
        let mut arguments = vec!["--kernel", &kernel, "--address", &address, "--device", &device];
        if stack != "tcp/ip" {
            arguments.extend(["--stack", stack, "--secret-file", secret.to_str().expect("a name")]);
        }
        litz(&self.namespace, &[&command[..], &arguments].concat())
    }

    /// Listens, and returns the command with what it says from then on.
    fn listen(&self, stack: &str, secret: u8) -> (Child, BufReader<std::process::ChildStderr>) {
        let mut listening = self.litz(["listen", "8080"], 67, stack, secret);
        let mut stderr = BufReader::new(listening.stderr.take().expect("a pipe"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("text");
        assert_eq!(line, "listening on 10.67.0.2:8080\n");
        (listening, stderr)
    }

    fn connect(&self, stack: &str, secret: u8) -> Child {
        self.litz(["connect", "10.67.0.2:8080"], 66, stack, secret)
    }
}

#[test]
fn two_stacks_with_security_layers_exchange_data() {
    let Some(world) = Layered::new("layers") else { return };
    for stack in ["tcp/blake3/ip", "aes128/tcp/ip", "chacha20/tcp/blake3/ip"] {
        let (ours, theirs) = (pattern(2_000_000, 1), pattern(1_000_000, 2));
        let (listening, _stderr) = world.listen(stack, 7);
        let bytes = theirs.clone();
        let serving = std::thread::spawn(move || run(listening, bytes));
        let (status, output, said) = run(world.connect(stack, 7), ours.clone());
        assert!(status == 0 && said.is_empty() && output == theirs, "{stack}: {said}");
        let (status, output, _) = serving.join().expect("no panic");
        assert!(status == 0 && output == ours, "{stack}");
    }
}

#[test]
fn another_stack_or_secret_is_told_on_both_sides() {
    let Some(world) = Layered::new("mismatch") else { return };
    // A digest is seen by the listener, which does not answer strangers. A stack without one refuses it.
    let both = "aes128/tcp/blake3/ip";
    for (listens, secret, said_by_connect) in [
        (both, 8, "cannot connect to 10.67.0.2:8080: the peer has not answered in the time allowed"),
        ("tcp/ip", 7, "cannot connect to 10.67.0.2:8080: the peer has refused the connection"),
    ] {
        let (mut listening, mut stderr) = world.listen(listens, secret);
        let (status, _, said) = run(world.connect(both, 7), b"hello".to_vec());
        let hint = format!("; the peer must have the stack {both} and the same secret\n");
        assert_eq!((status, said), (1, format!("litz: {said_by_connect}{hint}")), "{listens}");
        let mut line = String::new();
        stderr.read_line(&mut line).expect("text");
        assert_eq!(line, "a peer has another --stack or another secret: its packets are dropped\n", "{listens}");
        listening.kill().expect("it waits");
        listening.wait().expect("killed");
    }
    // Without one, the first record tells.
    for (listens, secret) in [("aes128/tcp/ip", 8), ("chacha20/tcp/ip", 7)] {
        let (listening, mut stderr) = world.listen(listens, secret);
        let connecting = world.connect("aes128/tcp/ip", 7);
        let serving = std::thread::spawn(move || run(listening, b"one".to_vec()).0);
        let (status, _, said) = run(connecting, b"two".to_vec());
        assert!(status == 1 && said.contains("the peer must have the stack aes128/tcp/ip"), "{listens}: {said}");
        assert_eq!(serving.join().expect("no panic"), 1, "{listens}");
        let mut said = String::new();
        stderr.read_to_string(&mut said).expect("text");
        assert!(said.contains(&format!("the peer must have the stack {listens}")), "{listens}: {said}");
    }
}

#[test]
fn wrong_options_of_layers_say_what_to_do() {
    let Some(world) = Layered::new("options") else { return };
    let secret = world.folder.path().join("7");
    let short = world.folder.path().join("short");
    std::fs::write(&short, [7; 31]).expect("written");
    let [secret, short] = [&secret, &short].map(|path| path.to_str().expect("a name"));
    for (arguments, words) in [
        (&["--stack", "aes128/tcp/blake3/ip"][..], "--secret-file"),
        (&["--secret-file", secret], "--stack"),
        (&["--stack", "tcp/blake3/ip", "--secret-file", short], "head -c 32 /dev/urandom"),
        (&["--stack", "tcp/blake3/ip", "--secret-file", "/nowhere"], "/nowhere"),
        (&["--stack", "des/tcp/md5/ip", "--secret-file", secret], "devices in memory only"),
        (&["--stack", "tcp/rot13/ip", "--secret-file", secret], "rot13"),
    ] {
        let command = [&["connect", "10.66.0.1:9", "--device", "t0"], arguments].concat();
        let (status, _, said) = run(litz(&world.namespace, &command), Vec::new());
        assert!(status == 2 && said.contains(words), "{arguments:?}: {said}");
    }
    let bench = ["bench", "--device", "t0", "--stack", "tcp/blake3/ip", "--secret-file", secret];
    let (status, _, said) = run(litz(&world.namespace, &bench), Vec::new());
    assert!(status == 2 && said.contains("the peer is the kernel"), "{said}");
}
