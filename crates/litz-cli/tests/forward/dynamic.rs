//! `-D`: the SOCKS5 proxy.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;

use super::*;
use crate::support::needs::has_programs;

/// A request of a client of SOCKS5: the reply's code and address, and the connection.
fn request(proxy: SocketAddr, command: u8, host: &str, port: u16) -> (u8, SocketAddr, TcpStream) {
    let mut stream = connect(proxy);
    stream.write_all(&[5, 1, 0]).expect("it is read");
    let mut method = [0; 2];
    stream.read_exact(&mut method).expect("an answer");
    assert_eq!(method, [5, 0]);
    let mut message = vec![5, command, 0];
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => message.extend([&[1], &ip.octets()[..]].concat()),
        Ok(IpAddr::V6(ip)) => message.extend([&[4], &ip.octets()[..]].concat()),
        Err(_) => message.extend([&[3, host.len() as u8], host.as_bytes()].concat()),
    }
    message.extend(port.to_be_bytes());
    stream.write_all(&message).expect("it is read");
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).expect("an answer");
    assert_eq!((reply[0], reply[2], reply[3]), (5, 0, 1));
    let ip: [u8; 4] = reply[4..8].try_into().expect("four");
    (reply[1], SocketAddr::from((ip, u16::from_be_bytes([reply[8], reply[9]]))), stream)
}

#[test]
fn clients_of_socks_reach_what_is_allowed_and_learn_what_is_not() {
    let target = late_echo();
    let (rule, closed) = (format!("127.0.0.1:{}", target.port()), free_port());
    let refused = format!("127.0.0.1:{closed}");
    let rules = ["--target", &rule, "--target", &refused, "--target=no-such-name.invalid:80"];
    let mut forwarder = Forwarder::start(&rules, &["-D", "0"]);
    let proxy = forwarder.address(0);
    for host in ["127.0.0.1", "localhost", "::ffff:127.0.0.1"] {
        let (code, bound, stream) = request(proxy, 1, host, target.port());
        assert!(code == 0 && bound.ip().is_loopback() && bound.port() != 0, "{host}: {code} {bound}");
        assert_echo(stream, 100_000, 1);
    }
    for (host, port, expected) in
        [("127.0.0.1", closed, 5), ("127.0.0.2", target.port(), 2), ("no-such-name.invalid", 80, 4)]
    {
        let (code, _, mut stream) = request(proxy, 1, host, port);
        assert_eq!(code, expected, "{host}:{port}");
        assert_eq!(stream.read(&mut [0]).expect("it is closed in order"), 0);
    }
    assert_eq!(request(proxy, 2, "127.0.0.1", 1).0, 7, "BIND");
}

/// What a client sends, in two parts, and the answer that it gets to the second one.
type Case<'a> = (&'a str, &'a [u8], &'a [u8], Vec<u8>);

#[test]
fn other_messages_than_those_of_socks_get_the_error_of_their_protocol() {
    let mut forwarder = Forwarder::start(&["--target=*:*"], &["-D", "0"]);
    let proxy = forwarder.address(0);
    let failed = |code| vec![5, code, 0, 1, 0, 0, 0, 0, 0, 0];
    let v4 = vec![0, 91, 0, 0, 0, 0, 0, 0];
    let greeting: &[u8] = &[5, 1, 0];
    let long = [&[5, 255][..], &[2; 255]].concat();
    let page = [&b"POST http://a/ HTTP/1.1\r\n\r\n"[..], &[b'x'; 20_000]].concat();
    let cases: [Case<'_>; 12] = [
        ("SOCKS4", b"", &[4, 1, 0, 80, 127, 0, 0, 1, 0], v4.clone()),
        ("SOCKS4a", b"", &[&[4, 1, 0, 80, 0, 0, 0, 1, 0][..], b"host\0"].concat(), v4),
        ("HTTP", b"", b"CONNECT host:80 HTTP/1.1\r\n\r\n", b"HTTP/1.1 501 ".into()),
        ("HTTP with a body", b"", &page, b"HTTP/1.1 501 ".into()),
        ("another protocol", b"", &[0x16, 3, 1, 2, 0, 1], vec![5, 0xff]),
        ("authentication", b"", &[5, 1, 2], vec![5, 0xff]),
        ("authentication in all ways", b"", &long, vec![5, 0xff]),
        ("another version", greeting, &[4, 1, 0, 1, 127, 0, 0, 1, 0, 80], failed(1)),
        ("a reserved byte", greeting, &[5, 1, 9, 1, 127, 0, 0, 1, 0, 80], failed(1)),
        ("a kind of address", greeting, &[5, 1, 0, 9, 127, 0, 0, 1, 0, 80], failed(8)),
        ("a name that is none", greeting, &[5, 1, 0, 3, 2, 0xff, 0xff, 0, 80], failed(1)),
        ("port 0", greeting, &[5, 1, 0, 1, 127, 0, 0, 1, 0, 0], failed(1)),
    ];
    for (name, first, second, expected) in cases {
        let mut stream = connect(proxy);
        if !first.is_empty() {
            stream.write_all(first).expect("it is read");
            stream.read_exact(&mut [0; 2]).expect("an answer");
        }
        stream.write_all(second).expect("it is read");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap_or_else(|error| panic!("{name}: {error}, after {answer:?}"));
        assert!(answer == expected || name.starts_with("HTTP") && answer.starts_with(&expected), "{name}: {answer:?}");
    }
    let target = late_echo();
    assert_echo(request(proxy, 1, "127.0.0.1", target.port()).2, 1000, 1);
}

#[test]
fn udp_packets_go_through_the_proxy_until_its_connection_ends() {
    let targets = [packets::echo(), packets::echo()];
    let mut forwarder = Forwarder::start(&["--target=udp:127.0.0.1:*"], &["-D", "0"]);
    let (code, relay, stream) = request(forwarder.address(0), 3, "0.0.0.0", 0);
    assert_eq!(code, 0);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(relay).expect("an address");
    socket.set_read_timeout(Some(std::time::Duration::from_millis(500))).expect("a socket");
    for (number, target) in targets.iter().enumerate() {
        for len in [1, 1300, 20_000] {
            let mut packet = [&[0, 0, 0, 1, 127, 0, 0, 1], &target.port().to_be_bytes()[..]].concat();
            packet.extend(random(len, number as u64));
            let mut buffer = vec![0; 65_536];
            let is_answered = (0..100).any(|_| {
                socket.send(&packet).expect("it is sent");
                socket.recv(&mut buffer).is_ok_and(|received| buffer[..received] == packet)
            });
            assert!(is_answered, "{len} bytes to {target}");
        }
    }
    drop(stream);
    let is_closed = (0..100).any(|_| {
        socket.send(&[0; 10]).is_err()
            || socket.recv(&mut [0; 10]).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    });
    assert!(is_closed, "the relay is closed with its connection");
}

#[test]
fn curl_uses_the_proxy() {
    if !has_programs(&["curl"]) {
        return;
    }
    let target = tcp_program(|mut stream| {
        let mut request = [0; 4096];
        let len = stream.read(&mut request).expect("a request");
        assert!(request[..len].starts_with(b"GET /page"));
        let body = "x".repeat(100_000);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).expect("it is read");
    });
    let rule = format!("localhost:{}", target.port());
    let mut forwarder = Forwarder::start(&["--target", &rule], &["-D", "0"]);
    let proxy = forwarder.address(0).to_string();
    let url = format!("http://localhost:{}/page", target.port());
    let output = Command::new("curl").args(["-sS", "-m", "60", "--socks5-hostname", &proxy, &url]).output();
    let output = output.expect("it runs");
    assert!(output.status.success() && output.stdout == "x".repeat(100_000).into_bytes(), "{output:?}");
}
