//! The kernel's side: a program on its sockets. And the kernel's own TCP as a stack, for connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::serve::{CHUNK, CLOSE, GIVE, TAKE, serve_socket};
use crate::{PORT, STACK};

/// Measures, and prints the rate in bit/s or the connections per second, and the processor seconds of
/// this process.
pub(crate) fn measure(what: &str, seconds: u64, congestion: &str) {
    let time = Duration::from_secs(seconds);
    let value = match what {
        "from-kernel" => from_kernel(time, congestion),
        "to-kernel" => to_kernel(time, congestion),
        "connections" => connections(time),
        _ => panic!("from-kernel, to-kernel or connections, not {what}"),
    };
    println!("{}", serde_json::json!({ "value": value, "cpu_s": cpu_seconds() }));
}

/// The processor time of this process in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    clock.tv_sec as f64 + clock.tv_nsec as f64 / 1e9
}

fn connect(congestion: &str) -> TcpStream {
    let address = SocketAddr::from((STACK, PORT));
    let stream = TcpStream::connect(address).expect("the stack listens");
    rustix::net::sockopt::set_tcp_congestion(&stream, congestion).expect("the kernel has it");
    stream
}

fn from_kernel(time: Duration, congestion: &str) -> f64 {
    let mut stream = connect(congestion);
    stream.write_all(&[TAKE]).expect("connected");
    let (chunk, start, mut bytes) = (vec![7; CHUNK], Instant::now(), 0_u64);
    while start.elapsed() < time {
        stream.write_all(&chunk).expect("connected");
        bytes += CHUNK as u64;
    }
    bytes as f64 * 8.0 / start.elapsed().as_secs_f64()
}

fn to_kernel(time: Duration, congestion: &str) -> f64 {
    let mut stream = connect(congestion);
    stream.write_all(&[GIVE]).expect("connected");
    let (mut memory, start, mut bytes) = (vec![0; CHUNK], Instant::now(), 0_u64);
    while start.elapsed() < time {
        let count = stream.read(&mut memory).expect("connected");
        assert!(count > 0, "the stack has ended");
        bytes += count as u64;
    }
    bytes as f64 * 8.0 / start.elapsed().as_secs_f64()
}

/// One after the other: opened, told to close, closed by both.
fn connections(time: Duration) -> f64 {
    let (start, mut count) = (Instant::now(), 0_u64);
    while start.elapsed() < time {
        let mut stream = TcpStream::connect((STACK, PORT)).expect("the stack listens");
        stream.write_all(&[CLOSE]).expect("connected");
        assert_eq!(stream.read(&mut [0; 1]).expect("an end"), 0);
        count += 1;
    }
    count as f64 / start.elapsed().as_secs_f64()
}

/// The kernel's own TCP as a stack: in a namespace of its own, at the other end of a veth pair.
pub(crate) fn serve() {
    let listener = TcpListener::bind((STACK, PORT)).expect("its address");
    println!("ready");
    for stream in listener.incoming() {
        // The peer ends it as it likes.
        let _ended = serve_socket(stream.expect("a client"));
    }
}
