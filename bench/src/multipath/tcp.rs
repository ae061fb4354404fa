//! Kernel TCP and Multipath TCP: blocking calls, one thread per side.
//!
//! The kernel opens further subflows by itself, to the addresses that the serving side announces
//! (`world/kernel.rs` configures that, and the buffers).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};

use socket2::{Domain, Protocol, Socket, Type};

use super::arrivals::{Arrivals, Content};
use super::case::Workload;
use super::contender::Controller;
use super::side::{Drive, REQUEST_LEN, Received, Sent, Serve, WARM_UP_S, report_connected, report_ready, until_ns};
use crate::contender::Failure;
use crate::meter::{Exchanges, monotonic_ns};
use crate::work::Timing;

/// Bytes per read, at most. Larger reads save system calls and leave the processor's caches.
const READ_LEN: usize = 256 << 10;
const BACKLOG: i32 = 4;

#[derive(Clone, Copy, Debug)]
pub enum Transport {
    Tcp,
    Mptcp,
}

impl Transport {
    fn socket(self, controller: Controller) -> Result<Socket, Failure> {
        let protocol = match self {
            Self::Tcp => Protocol::TCP,
            Self::Mptcp => Protocol::MPTCP,
        };
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(protocol))?;
        // Further subflows inherit it.
        socket.set_tcp_congestion(match controller {
            Controller::Cubic => b"cubic",
            Controller::Bbr => b"bbr",
        })?;
        Ok(socket)
    }
}

pub fn serve(transport: Transport, serve: &Serve) -> Result<Received, Failure> {
    let socket = transport.socket(serve.controller)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from(socket);
    let port = listener.local_addr()?.port();
    let addresses: Vec<SocketAddr> = serve.listen.iter().map(|&ip| SocketAddr::new(ip, port)).collect();
    report_ready(&addresses)?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut received = match serve.workload {
        Workload::Bulk => sink(&mut stream)?,
        Workload::Exchanges => {
            let mut request = [0; REQUEST_LEN];
            while stream.read_exact(&mut request).is_ok() {
                stream.write_all(&request)?;
            }
            Received::default()
        }
    };
    received.note_usage();
    Ok(received)
}

fn sink(stream: &mut TcpStream) -> Result<Received, Failure> {
    let (mut arrivals, content) = (Arrivals::new(), Content::new());
    let mut buffer = vec![0; READ_LEN];
    let mut faults = 0;
    loop {
        let len = stream.read(&mut buffer)?;
        if len == 0 {
            break;
        }
        faults += u64::from(!content.is_right(arrivals.bytes, &buffer[..len]));
        arrivals.note(len);
    }
    Ok(Received { arrivals: Some(arrivals), faults, ..Received::default() })
}

pub fn drive(transport: Transport, drive: &Drive, remotes: &[SocketAddr]) -> Result<Sent, Failure> {
    let begun_ns = monotonic_ns();
    let socket = transport.socket(drive.controller)?;
    socket.connect(&(*remotes.first().ok_or("nowhere to connect to")?).into())?;
    let mut stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    let connected_ns = report_connected()?;
    let mut sent = Sent { begun_ns, connected_ns, ..Sent::default() };
    match drive.workload {
        Workload::Bulk => {
            let chunk = Content::new().chunk();
            let until = until_ns(connected_ns, drive.time);
            while monotonic_ns() < until {
                stream.write_all(&chunk)?;
                sent.bytes += chunk.len() as u64;
            }
            sent.written_ns = monotonic_ns();
            stream.shutdown(Shutdown::Write)?;
            // The other side closes when it has received everything.
            stream.read_to_end(&mut Vec::new())?;
            sent.done_ns = monotonic_ns();
        }
        Workload::Exchanges => {
            let mut exchanges = Exchanges::new(Timing { warm_up: WARM_UP_S, time: drive.time });
            let mut response = [0; REQUEST_LEN];
            while let Some(begun) = exchanges.begin() {
                stream.write_all(&[7; REQUEST_LEN])?;
                stream.read_exact(&mut response)?;
                if response != [7; REQUEST_LEN] {
                    return Err("a response that is not the request".into());
                }
                exchanges.end(begun);
            }
            sent.note_exchanges(&exchanges);
        }
    }
    sent.note_usage();
    Ok(sent)
}
