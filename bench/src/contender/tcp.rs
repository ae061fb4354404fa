//! Kernel TCP without encryption: blocking calls, one thread per side.
//!
//! The send and receive buffers are the kernel's own, which grow by themselves up to `tcp_rmem` and
//! `tcp_wmem`; setting a size would disable that.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::{Background, Failure, Server};
use crate::meter::BulkMeter;
use crate::work::{CHUNK_LEN, Figures, Job};

/// Bytes per read, at most. Larger reads save system calls and leave the processor's caches.
const READ_LEN: usize = 256 << 10;

/// A server whose thread passes each connection to `sink`.
pub fn serve_with(
    job: &Job,
    listen: SocketAddr,
    mut sink: impl FnMut(TcpStream, BulkMeter) -> Result<Figures, Failure> + Send + 'static,
) -> Result<Box<dyn Server>, Failure> {
    let listener = TcpListener::bind(listen)?;
    let address = listener.local_addr()?;
    let figures = Arc::new(Mutex::new(Figures::default()));
    let (shared, job) = (figures.clone(), *job);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            if let Ok(measured) = sink(stream, BulkMeter::new(&job)) {
                *shared.lock().expect("no thread panics") = measured;
            }
        }
    });
    Ok(Box::new(Background { address, figures }))
}

pub fn server(job: &Job, listen: SocketAddr) -> Result<Box<dyn Server>, Failure> {
    let mut buffer = vec![0; READ_LEN];
    serve_with(job, listen, move |mut stream, mut meter| {
        while meter.note(stream.read(&mut buffer)?) {}
        Ok(meter.figures())
    })
}

pub fn drive(job: &Job, remote: SocketAddr) -> Result<Figures, Failure> {
    let mut stream = TcpStream::connect(remote)?;
    stream.set_nodelay(true)?;
    let chunk = vec![0x5a; CHUNK_LEN];
    let mut meter = BulkMeter::new(job);
    // The server closes when its time is over.
    while stream.write_all(&chunk).is_ok() {
        meter.note(chunk.len());
    }
    Ok(meter.sender_figures())
}
