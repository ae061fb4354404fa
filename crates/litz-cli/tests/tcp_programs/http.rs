//! HTTP: nginx and curl.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;

use super::forward::Forwarder;
use super::world::{Place, REMOTE, Server, World, assert_same, faulty, stack_addresses, with_port};

const LEN: usize = 3_000_000;

/// Serves the folder of the world, and takes uploads below `up`.
pub(super) fn nginx(world: &World, place: Place) -> Server {
    std::fs::create_dir_all(world.path("up")).expect("a folder");
    let name = if place == Place::Host { "host" } else { "remote" };
    let folder = world.path("");
    let folder = folder.to_str().expect("a plain path");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/nginx-{name}-{kind};\n"))
        .concat();
    let config = world.text(
        &format!("nginx-{name}.conf"),
        &format!(
            "daemon off; master_process off; user root; pid {folder}/nginx-{name}.pid; error_log /dev/null;\n\
             events {{}}\n\
             http {{ access_log off; {temporary} client_max_body_size 1g; client_body_buffer_size 16k;\n\
             server {{ listen 80; listen [::]:80; root {folder}; \n\
             dav_methods PUT; create_full_put_path on; }} }}\n"
        ),
    );
    world.serve(place, "nginx", &["-c", config.to_str().expect("a plain path"), "-e", "/dev/null"], "127.0.0.1:80")
}

/// The body of a response, which must be a success.
fn body(response: &[u8]) -> &[u8] {
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a header");
    let header = String::from_utf8_lossy(&response[..end]);
    assert!(header.starts_with("HTTP/1.1 20"), "{header}");
    &response[end + 4..]
}

/// Sends a request, and reads to the end of the connection. nginx does not go on for a client that has
/// finished, so standard input stays open.
fn request(mut litz: Child, request: &[u8]) -> Vec<u8> {
    let (mut stdin, mut stdout) = (litz.stdin.take().expect("a pipe"), litz.stdout.take().expect("a pipe"));
    let mut response = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| stdin.write_all(request).expect("it reads"));
        stdout.read_to_end(&mut response).expect("a pipe");
    });
    drop(stdin);
    let output = litz.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    response
}

fn nginx_serves_the_command(seed: u64, congestion: &str) {
    let Some(world) = World::new(&["nginx"], seed, &faulty(5, 10, 5), congestion) else { return };
    let _nginx = nginx(&world, Place::Remote);
    let down = world.file("down", LEN);
    let up = world.file("source", LEN + 1);
    for (number, address) in (1..).zip(REMOTE) {
        let remote = with_port(address, 80);
        let get = b"GET /down HTTP/1.1\r\nHost: remote\r\nConnection: close\r\n\r\n";
        let response = request(world.litz(number, &["connect", &remote]), get);
        assert_same(body(&response), &down, &format!("{congestion}: {remote}"));
        let mut put = format!(
            "PUT /up/{number} HTTP/1.1\r\nHost: remote\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            up.len()
        )
        .into_bytes();
        put.extend_from_slice(&up);
        let response = request(world.litz(number, &["connect", &remote]), &put);
        assert!(body(&response).is_empty());
        let uploaded = std::fs::read(world.path(&format!("up/{number}"))).expect("uploaded");
        assert_same(&uploaded, &up, &format!("{congestion}: {remote}"));
    }
}

#[test]
fn nginx_under_cubic_serves_the_command() {
    nginx_serves_the_command(1, "cubic");
}

#[test]
fn nginx_under_bbr_serves_the_command() {
    nginx_serves_the_command(2, "bbr");
}

#[test]
fn curl_reads_what_the_command_serves_and_sends_to_it() {
    let Some(world) = World::new(&["curl"], 3, &faulty(5, 10, 5), "cubic") else { return };
    let (down, up) = (world.file("down", LEN), world.file("up", LEN + 1));
    for address in stack_addresses(1) {
        // A server that answers before it has read the request would end the upload.
        let sizes: [(&[u8], &[u8]); 2] = [(&down, &[]), (&[], &up)];
        for (response, request) in sizes {
            let mut litz = world.litz(1, &["listen", "8080"]);
            let mut stderr = BufReader::new(litz.stderr.take().expect("a pipe"));
            let mut line = String::new();
            while !line.contains(&format!("{}", std::net::SocketAddr::new(address, 8080))) {
                line.clear();
                assert!(stderr.read_line(&mut line).expect("text") > 0, "it ended early");
            }
            let url = format!("http://{}/file", std::net::SocketAddr::new(address, 8080));
            let mut arguments = vec!["-sS", "-H", "Expect:", url.as_str(), "-o", "received"];
            if !request.is_empty() {
                arguments.extend(["-T", "up"]);
            }
            let mut served = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", response.len()).into_bytes();
            served.extend_from_slice(response);
            let output = std::thread::scope(|scope| {
                let curl = scope.spawn(|| world.succeed(Place::Remote, "curl", &arguments, &[]));
                let output = serve(litz, &served, request.len());
                curl.join().expect("curl succeeds");
                output
            });
            let end = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a header") + 4;
            assert_same(&output[end..], request, &format!("to {address}"));
            if request.is_empty() {
                assert_same(
                    &std::fs::read(world.path("received")).expect("a file"),
                    response,
                    &format!("from {address}"),
                );
            }
        }
    }
}

/// Reads a request with a body of `len` bytes from the command, then answers.
fn serve(mut litz: Child, response: &[u8], len: usize) -> Vec<u8> {
    let (mut stdin, mut stdout) = (litz.stdin.take().expect("a pipe"), litz.stdout.take().expect("a pipe"));
    let (mut request, mut memory) = (Vec::new(), vec![0; 64 << 10]);
    let is_whole = |request: &[u8]| {
        let end = request.windows(4).take(4000).position(|bytes| bytes == b"\r\n\r\n");
        end.is_some_and(|end| request.len() == end + 4 + len)
    };
    while !is_whole(&request) {
        let count = stdout.read(&mut memory).expect("a pipe");
        assert!(count > 0, "the request has ended after {} bytes", request.len());
        request.extend_from_slice(&memory[..count]);
    }
    stdin.write_all(response).expect("it reads");
    drop(stdin);
    assert_eq!(stdout.read(&mut memory).expect("a pipe"), 0, "curl sends nothing else");
    assert!(litz.wait().expect("it ends").success());
    request
}

/// Many connections at a time, in either role.
#[test]
fn curl_and_nginx_transfer_many_files_through_the_stack() {
    for (seed, congestion) in [(4, "cubic"), (5, "bbr")] {
        let Some(world) = World::new(&["nginx", "curl"], seed, &faulty(5, 10, 5), congestion) else { return };
        let _nginx = [nginx(&world, Place::Host), nginx(&world, Place::Remote)];
        let forwarder = Forwarder::start(&world, 1, 80, with_port(REMOTE[seed as usize % 2], 80).parse().expect("one"));
        let files: Vec<_> = (0..20).map(|number| world.file(&format!("f{number}"), 1 + number * 20_011)).collect();
        let to_stack = stack_addresses(1).map(|address| std::net::SocketAddr::new(address, 80).to_string());
        let to_remote = format!("127.0.0.1:{}", forwarder.kernel_port);
        let ways = [(Place::Remote, &to_stack[0]), (Place::Remote, &to_stack[1]), (Place::Host, &to_remote)];
        for (way, (place, authority)) in ways.into_iter().enumerate() {
            let (get, put) = (format!("http://{authority}/f[0-19]"), format!("http://{authority}/up/{way}-"));
            let output = format!("got-{way}-#1");
            world.succeed(place, "curl", &["-sSf", "-Z", &get, "-o", &output], &[]);
            let names: Vec<_> = (0..20).map(|number| format!("f{number}")).collect();
            let upload = format!("{{{}}}", names.join(","));
            world.succeed(
                place,
                "curl",
                &["-sSf", "-T", &upload, &put.replace(&format!("{way}-"), &format!("{way}/"))],
                &[],
            );
            for (number, file) in files.iter().enumerate() {
                for name in [format!("got-{way}-{number}"), format!("up/{way}/f{number}")] {
                    assert_same(
                        &std::fs::read(world.path(&name)).expect("a file"),
                        file,
                        &format!("{congestion}: {name}"),
                    );
                }
            }
        }
    }
}
