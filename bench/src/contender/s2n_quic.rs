//! s2n-quic on a current-thread runtime, with the same TLS library, windows, socket buffers and
//! fixed MTU.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use s2n_quic::client::Connect;
use s2n_quic::connection::Connection;
use s2n_quic::provider::io::tokio::{Builder as IoBuilder, Provider as Io};
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::tls::rustls as provider;
use s2n_quic::{Client, Server as QuicServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

use super::{Background, Failure, Server};
use crate::meter::{BulkMeter, ConnectMeter, Exchanges, latencies};
use crate::tls;
use crate::work::{
    CHUNK_LEN, CONNECT_LEN, Figures, HANDSHAKES, IDLE_TIMEOUT, Job, REQUEST_LEN, SOCKET_BUFFER, Test, WINDOW,
};

fn limits() -> Result<Limits, Failure> {
    let window = u64::from(WINDOW);
    Ok(Limits::new()
        .with_data_window(window)?
        .with_unidirectional_data_window(window)?
        .with_bidirectional_local_data_window(window)?
        .with_bidirectional_remote_data_window(window)?
        .with_max_send_buffer_size(WINDOW)?
        .with_max_idle_timeout(IDLE_TIMEOUT)?)
}

fn io(job: &Job, bind: SocketAddr) -> Result<Io, Failure> {
    Ok(IoBuilder::default()
        .with_receive_address(bind)?
        .with_send_buffer_size(SOCKET_BUFFER)?
        .with_recv_buffer_size(SOCKET_BUFFER)?
        .with_max_mtu(job.mtu)?
        .with_initial_mtu(job.mtu)?
        .with_base_mtu(job.mtu)?
        .build()?)
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

pub fn server(job: &Job, listen: SocketAddr) -> Result<Box<dyn Server>, Failure> {
    let figures = Arc::new(Mutex::new(Figures::default()));
    let (shared, job) = (figures.clone(), *job);
    let (said, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || -> Result<(), Failure> {
        runtime()?.block_on(async move {
            let server = QuicServer::builder()
                .with_tls(provider::Server::from(tls::server()))?
                .with_io(io(&job, listen)?)?
                .with_limits(limits()?)?
                .start()?;
            said.send(server.local_addr()?)?;
            accept(server, &job, &shared).await;
            Ok(())
        })
    });
    Ok(Box::new(Background { address: address.recv()?, figures }))
}

async fn accept(mut server: QuicServer, job: &Job, figures: &Mutex<Figures>) {
    let leave = |measured| *figures.lock().expect("no thread panics") = measured;
    let mut connects = ConnectMeter::default();
    while let Some(mut connection) = server.accept().await {
        match job.test {
            Test::Bulk => {
                if let Ok(measured) = sink(&mut connection, job).await {
                    leave(measured);
                }
            }
            Test::RequestResponse => drop(echo(&mut connection).await),
            Test::Connect => {
                if answer(&mut connection).await.is_ok() {
                    connects.note();
                    leave(connects.figures());
                }
            }
            // Until the client disconnects.
            Test::Handshake => drop(connection.accept().await),
            Test::Idle | Test::IdleParked | Test::File | Test::KeyUpdate => {}
        }
    }
}

async fn sink(connection: &mut Connection, job: &Job) -> Result<Figures, Failure> {
    let mut stream = connection.accept_receive_stream().await?.ok_or("no stream")?;
    let mut meter = BulkMeter::new(job);
    let mut chunks: [Bytes; 64] = std::array::from_fn(|_| Bytes::new());
    loop {
        let (count, open) = stream.receive_vectored(&mut chunks).await?;
        let bytes = chunks[..count].iter_mut().map(|chunk| std::mem::take(chunk).len()).sum();
        if !meter.note(bytes) || !open {
            break;
        }
    }
    stream.stop_sending(s2n_quic::application::Error::UNKNOWN)?;
    Ok(meter.figures())
}

async fn echo(connection: &mut Connection) -> Result<(), Failure> {
    let mut stream = connection.accept_bidirectional_stream().await?.ok_or("no stream")?;
    let mut request = [0; REQUEST_LEN];
    loop {
        stream.read_exact(&mut request).await?;
        stream.write_all(&request).await?;
    }
}

/// The serving side of one connection of the connect test.
async fn answer(connection: &mut Connection) -> Result<(), Failure> {
    let stream = connection.accept_bidirectional_stream().await?.ok_or("no stream")?;
    let (mut recv, mut send) = stream.split();
    let mut request = Vec::with_capacity(CONNECT_LEN);
    recv.read_to_end(&mut request).await?;
    send.write_all(&request).await?;
    send.finish()?;
    // Until the client disconnects.
    drop(connection.accept().await);
    Ok(())
}

pub fn drive(job: &Job, remote: SocketAddr) -> Result<Figures, Failure> {
    runtime()?.block_on(async {
        let client = Client::builder()
            .with_tls(provider::Client::from(tls::client()))?
            .with_io(io(job, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?)?
            .with_limits(limits()?)?
            .start()?;
        let connect = || async { client.connect(Connect::new(remote).with_server_name("localhost")).await };
        match job.test {
            Test::Bulk => send_bulk(connect().await?, job).await,
            Test::Handshake => {
                let mut samples = Vec::with_capacity(HANDSHAKES);
                for _ in 0..HANDSHAKES {
                    let start = Instant::now();
                    let connection = connect().await?;
                    samples.push(start.elapsed());
                    connection.close(s2n_quic::application::Error::UNKNOWN);
                }
                Ok(latencies(&samples))
            }
            Test::Connect => {
                let mut connects = ConnectMeter::default();
                for _ in 0..ConnectMeter::CONNECTIONS {
                    let mut connection = connect().await?;
                    let (mut recv, mut send) = connection.open_bidirectional_stream().await?.split();
                    send.write_all(&[7; CONNECT_LEN]).await?;
                    send.finish()?;
                    recv.read_to_end(&mut Vec::with_capacity(CONNECT_LEN)).await?;
                    connection.close(s2n_quic::application::Error::UNKNOWN);
                    connects.note();
                }
                Ok(connects.figures())
            }
            Test::RequestResponse => ask(connect().await?, job).await,
            Test::Idle | Test::IdleParked | Test::File | Test::KeyUpdate => Err("not for this contender".into()),
        }
    })
}

/// Writes until the server stops reading.
async fn send_bulk(mut connection: Connection, job: &Job) -> Result<Figures, Failure> {
    let mut stream = connection.open_send_stream().await?;
    let chunk = Bytes::from(vec![0x5a; CHUNK_LEN]);
    let mut meter = BulkMeter::new(job);
    while stream.send(chunk.clone()).await.is_ok() {
        meter.note(chunk.len());
    }
    Ok(meter.sender_figures())
}

async fn ask(mut connection: Connection, job: &Job) -> Result<Figures, Failure> {
    let mut stream = connection.open_bidirectional_stream().await?;
    let mut response = [0; REQUEST_LEN];
    let mut exchanges = Exchanges::new(job.timing);
    while let Some(begun) = exchanges.begin() {
        stream.write_all(&[7; REQUEST_LEN]).await?;
        stream.read_exact(&mut response).await?;
        exchanges.end(begun);
    }
    Ok(exchanges.figures())
}
