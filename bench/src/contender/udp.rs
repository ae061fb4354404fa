//! A raw UDP socket: 64 bytes in each direction, without a protocol. Each side waits with `poll`
//! and then receives.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, poll};

use super::{Background, Failure, Server};
use crate::meter::Exchanges;
use crate::work::{Figures, Job, REQUEST_LEN};

/// Waits for a datagram. A datagram lost on loopback would hang the run, which the runner's time
/// limit reports.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Result<SocketAddr, Failure> {
    poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)], None)?;
    Ok(socket.recv_from(buffer)?.1)
}

pub fn server(listen: SocketAddr) -> Result<Box<dyn Server>, Failure> {
    let socket = UdpSocket::bind(listen)?;
    let address = socket.local_addr()?;
    std::thread::spawn(move || -> Result<(), Failure> {
        let mut buffer = [0; REQUEST_LEN];
        loop {
            let from = receive(&socket, &mut buffer)?;
            socket.send_to(&buffer, from)?;
        }
    });
    Ok(Box::new(Background { address, figures: Arc::new(Mutex::new(Figures::default())) }))
}

pub fn drive(job: &Job, remote: SocketAddr) -> Result<Figures, Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut response = [0; REQUEST_LEN];
    let mut exchanges = Exchanges::new(job.timing);
    while let Some(begun) = exchanges.begin() {
        socket.send_to(&[7; REQUEST_LEN], remote)?;
        receive(&socket, &mut response)?;
        exchanges.end(begun);
    }
    Ok(exchanges.figures())
}
