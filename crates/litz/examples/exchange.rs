//! Round trips, new connections and bytes per second to a server, over a stream of one Litz connection, over the
//! kernel's sockets, which may be taken over by `litz run`, or through `litz daemon`. `bench/daemon/run` compares them.
//!
//! ```text
//! exchange serve ADDRESS:PORT                          both, on TCP and UDP of this port; prints a fingerprint
//! exchange litz ADDRESS:PORT FINGERPRINT SECONDS       prints microseconds, microseconds, MB/s
//! exchange tcp ADDRESS:PORT SECONDS
//! exchange daemon SOCKET ADDRESS:PORT SECONDS          through the daemon, in memory that it shares
//! ```
#![expect(clippy::print_stdout, reason = "the figures are the result")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "an application of threads, sockets and time")]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use litz::daemon::{self, Daemon};
use litz::identity::{Fingerprint, KeyPair, client_config, server_config};
use litz::{Connection, Endpoint, EndpointConfig, RecvStream, SendStream, UdpSocketOptions};

/// Bytes of a question, and of its answer.
const QUESTION_LEN: usize = 64;
/// Bytes of a write of the bulk transfer.
const BLOCK_LEN: usize = 256 << 10;
/// New connections that are timed.
const CONNECTIONS: usize = 100;

/// The first byte of a channel: what the server does.
const ECHO: u8 = b'e';
const COUNT: u8 = b'c';
const ANSWER: u8 = b'a';

/// A connection of the kernel, a stream of a Litz connection, or one of the daemon.
enum Channel {
    Socket(TcpStream),
    Stream(SendStream, RecvStream),
    Daemon(daemon::Stream),
}

impl Channel {
    fn socket(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Socket(stream))
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(stream) => stream.read(buffer),
            Self::Stream(_, recv) => recv.read(buffer),
            Self::Daemon(stream) => stream.read(buffer),
        }
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Socket(stream) => stream.read_exact(buffer),
            Self::Stream(_, recv) => recv.read_exact(buffer),
            Self::Daemon(stream) => stream.read_exact(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Socket(stream) => stream.write_all(bytes),
            Self::Stream(send, _) => send.write_all(bytes),
            Self::Daemon(stream) => stream.write_all(bytes),
        }
    }

    /// Writes memory that does not change: the library takes it by reference.
    fn write_block(&mut self, block: &Bytes) -> io::Result<()> {
        match self {
            Self::Socket(stream) => stream.write_all(block),
            Self::Stream(send, _) => Ok(send.write_chunk(block.clone())?),
            Self::Daemon(stream) => stream.write_all(block),
        }
    }

    /// Bytes to the end, as each way takes them best.
    fn count(&mut self) -> io::Result<u64> {
        let mut total = 0;
        if let Self::Stream(_, recv) = self {
            while let Some(bytes) = recv.read_strided()? {
                total += bytes.len() as u64;
            }
            return Ok(total);
        }
        let mut buffer = vec![0; 1 << 20];
        loop {
            match self.read(&mut buffer)? {
                0 => return Ok(total),
                len => total += len as u64,
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Socket(stream) => stream.shutdown(Shutdown::Write),
            Self::Stream(send, _) => Ok(send.finish()?),
            Self::Daemon(stream) => stream.finish(),
        }
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve", address] => serve(address.parse()?),
        ["tcp", address, seconds] => {
            let address: SocketAddr = address.parse()?;
            measure(|| Channel::socket(TcpStream::connect(address)?), seconds.parse()?)
        }
        ["litz", address, fingerprint, seconds] => {
            let (address, fingerprint): (SocketAddr, Fingerprint) = (address.parse()?, fingerprint.parse()?);
            let client = Endpoint::bind(bound_to(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)))?;
            let tls = client_config(&KeyPair::generate()?, &[fingerprint], ["exchange/1"])?;
            let connection = client.connect(address, "litz", tls.config.clone())?;
            let open = || connection.open_bi().map(|(send, recv)| Channel::Stream(send, recv)).map_err(io::Error::from);
            measure(open, seconds.parse()?)
        }
        ["daemon", socket, target, seconds] => {
            let daemon = Daemon::connect(Path::new(socket), "exchange")?;
            let open = || -> io::Result<Channel> {
                let stream = daemon.open(target)?;
                assert!(stream.shares_memory(), "the daemon has memory to share");
                Ok(Channel::Daemon(stream))
            };
            measure(open, seconds.parse()?)
        }
        // As tests run it: both ends in this process, briefly.
        [] => check(),
        _ => Err("exchange serve ADDRESS:PORT | tcp ADDRESS:PORT SECONDS | litz ADDRESS:PORT FINGERPRINT SECONDS | \
                 daemon SOCKET ADDRESS:PORT SECONDS"
            .into()),
    }
}

fn bound_to(address: SocketAddr) -> EndpointConfig {
    EndpointConfig::default().with_sockets(vec![UdpSocketOptions::new(address)])
}

fn check() -> Result<(), Box<dyn Error>> {
    let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
    let server =
        Endpoint::bind(EndpointConfig::loopback().with_server_tls(server_config(&server_key, ["exchange/1"])?))?;
    let client = Endpoint::bind(EndpointConfig::loopback())?;
    let tls = client_config(&client_key, &[server_key.public().fingerprint()], ["exchange/1"])?;
    let connection = client.connect(server.local_addr(), "litz", tls.config.clone())?;
    std::thread::spawn(move || accept_streams(&server));
    let open = || connection.open_bi().map(|(send, recv)| Channel::Stream(send, recv)).map_err(io::Error::from);
    measure(open, 0.05)
}

fn serve(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let key = KeyPair::generate()?;
    let endpoint = Endpoint::bind(bound_to(address).with_server_tls(server_config(&key, ["exchange/1"])?))?;
    let listener = TcpListener::bind(address)?;
    println!("{}", key.public().fingerprint());
    std::thread::spawn(move || accept_streams(&endpoint));
    for stream in listener.incoming() {
        let channel = Channel::socket(stream?)?;
        std::thread::spawn(move || answer(channel));
    }
    Ok(())
}

fn accept_streams(endpoint: &Endpoint) {
    while let Ok(connection) = endpoint.accept() {
        std::thread::spawn(move || answer_streams(&connection));
    }
}

fn answer_streams(connection: &Connection) {
    while let Ok((send, recv)) = connection.accept_bi() {
        std::thread::spawn(move || answer(Channel::Stream(send, recv)));
    }
}

/// Does what the first byte says. A client that ends early is no error.
fn answer(mut channel: Channel) -> io::Result<()> {
    let mut kind = [0];
    channel.read_exact(&mut kind)?;
    match kind {
        [ECHO] => {
            let mut buffer = [0; QUESTION_LEN];
            loop {
                match channel.read(&mut buffer)? {
                    0 => break,
                    len => channel.write(&buffer[..len])?,
                }
            }
        }
        [COUNT] => {
            let total = channel.count()?;
            channel.write(&total.to_be_bytes())?;
        }
        _ => channel.write(&kind)?,
    }
    channel.finish()?;
    // Dropping a stream before its end would ask the client to stop.
    while channel.read(&mut kind)? > 0 {}
    Ok(())
}

/// Prints the median round trip and the median time of a new connection with a byte each way, in microseconds, and
/// the rate to the server in MB/s.
fn measure(open: impl Fn() -> io::Result<Channel>, seconds: f64) -> Result<(), Box<dyn Error>> {
    let open = |kind| -> io::Result<Channel> {
        let mut channel = open()?;
        channel.write(&[kind])?;
        Ok(channel)
    };
    let duration = Duration::from_secs_f64(seconds);
    let (mut channel, mut trips, begin) = (open(ECHO)?, Vec::new(), Instant::now());
    while begin.elapsed() < duration || trips.is_empty() {
        let start = Instant::now();
        let mut answer = [0; QUESTION_LEN];
        channel.write(&[7; QUESTION_LEN])?;
        channel.read_exact(&mut answer)?;
        trips.push(start.elapsed());
        assert_eq!(answer, [7; QUESTION_LEN], "the answer is the question");
    }
    channel.finish()?;
    let mut new = Vec::new();
    for _ in 0..CONNECTIONS {
        let start = Instant::now();
        let mut channel = open(ANSWER)?;
        channel.read_exact(&mut [0])?;
        new.push(start.elapsed());
        channel.finish()?;
    }
    let (mut channel, block, mut sent, begin) = (open(COUNT)?, Bytes::from(vec![0; BLOCK_LEN]), 0, Instant::now());
    while begin.elapsed() < duration || sent == 0 {
        channel.write_block(&block)?;
        sent += BLOCK_LEN as u64;
    }
    channel.finish()?;
    let mut total = [0; 8];
    channel.read_exact(&mut total)?;
    assert_eq!(u64::from_be_bytes(total), sent, "all bytes have arrived");
    let rate = sent as f64 / begin.elapsed().as_secs_f64() / 1e6;
    println!("{:.1} {:.1} {rate:.1}", median_us(&mut trips), median_us(&mut new));
    Ok(())
}

fn median_us(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
