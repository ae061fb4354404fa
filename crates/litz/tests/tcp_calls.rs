//! The calls of TCP streams: asynchronous ones, timeouts, and queries of the state.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Duration;

use litz::Placement;
use litz::tcp::{Closed, IpDevice, KeepAlive, MemoryTun, State, TcpStack, TcpStackConfig};

use crate::listening::Listening;
use crate::world::pattern;

const IPS: [IpAddr; 2] = [ip(1), ip(2)];

const fn ip(last: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, last))
}

/// Returns two stacks with a link between them. Both accept connections to port 80.
fn stacks(placement: Placement) -> [Listening; 2] {
    let mut ips = IPS.iter();
    MemoryTun::pair().map(|tun| {
        let ip = *ips.next().expect("two addresses");
        let config = TcpStackConfig::new(IpDevice::memory(tun, ip), &[ip]);
        Listening::start(config.with_placement(placement))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_echo_over_many_connections() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const CONNECTIONS: u64 = 20;
    let [client, server] = stacks(Placement::Thread);
    tokio::spawn(async move {
        while let Ok(stream) = server.listener.accept_async().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = (&stream, &stream);
                tokio::io::copy(&mut reader, &mut writer).await.expect("the client reads and writes");
                writer.shutdown().await.expect("connected");
                stream.closed_async().await
            });
        }
    });
    let echoes = (0..CONNECTIONS).map(|seed| {
        let client = client.clone();
        tokio::spawn(async move {
            let stream = client.connect_async((IPS[1], 80).into()).await.expect("connected");
            // More than both sides hold, so that writing waits for reading.
            let bytes = pattern(11 << 20, seed);
            let writing = async {
                (&stream).write_all(&bytes).await.expect("the server reads");
                (&stream).shutdown().await.expect("connected");
            };
            let reading = async {
                let mut echo = Vec::new();
                (&stream).read_to_end(&mut echo).await.expect("the server finishes");
                echo
            };
            let ((), echo) = tokio::join!(writing, reading);
            assert!(echo == bytes);
        })
    });
    for echo in echoes.collect::<Vec<_>>() {
        echo.await.expect("echoed");
    }
}

#[tokio::test]
async fn asynchronous_calls_say_that_they_need_a_thread() {
    let [client, _server] = stacks(Placement::Inline);
    let error = client.connect_async((IPS[1], 80).into()).await.err().expect("refused");
    assert!(matches!(&error, Closed::Configuration(_)), "{error:?}");
    assert!(error.to_string().contains("Inline"), "{error}");
}

#[test]
fn a_connect_ends_at_its_timeout_and_leaves_nothing() {
    // Nothing is at the other end of the link.
    let [tun, _other] = MemoryTun::pair();
    let stack = TcpStack::start(TcpStackConfig::new(IpDevice::memory(tun, IPS[0]), &[IPS[0]])).expect("a stack");
    let result = stack.connect_timeout((IPS[1], 80).into(), Duration::from_millis(20));
    assert_eq!(result.err(), Some(Closed::ConnectTimedOut));
    while stack.connection_count() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn reading_and_writing_end_at_their_timeouts_and_lose_nothing() {
    use std::io::{Read, Write};

    for placement in [Placement::Inline, Placement::Thread] {
        let [client, server] = stacks(placement);
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| server.accept().expect("a client"));
            let stream = client.connect((IPS[1], 80).into()).expect("connected");
            let peer = accepting.join().expect("accepted");
            let timeout = Some(Duration::from_millis(5));
            stream.set_read_timeout(timeout);
            let error = (&stream).read(&mut [0; 10]).expect_err("nothing was written");
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            // The peer does not read, so writing stops.
            stream.set_write_timeout(timeout);
            let bytes = pattern(1 << 20, 7);
            let mut written = Vec::new();
            loop {
                match (&stream).write(&bytes) {
                    Ok(count) => written.extend_from_slice(&bytes[..count]),
                    Err(error) => break assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                assert!(written.len() < 100 << 20, "writing never stops");
            }
            stream.finish();
            let mut received = Vec::new();
            let reading = scope.spawn(move || (&peer).read_to_end(&mut received).map(|_| received));
            stream.set_read_timeout(None);
            assert_eq!((&stream).read(&mut [0; 1]).expect("the peer ends"), 0);
            assert!(reading.join().expect("read").expect("the end") == written, "{placement}");
        });
    }
}

#[test]
fn a_stream_tells_its_addresses_and_state_under_every_placement() {
    for placement in [Placement::Thread, Placement::Split, Placement::Pipeline, Placement::Packet(2)] {
        tell_addresses_and_state(placement);
    }
}

fn tell_addresses_and_state(placement: Placement) {
    use std::io::{Read, Write};

    let [client, server] = stacks(placement);
    let from = (IPS[0], 4321).into();
    let stream = client.connect_from(from, (IPS[1], 80).into()).expect("connected");
    let peer = server.accept().expect("a client");
    assert_eq!((stream.local_addr(), stream.peer_addr()), (from, (IPS[1], 80).into()));
    assert_eq!((peer.local_addr(), peer.peer_addr()), ((IPS[1], 80).into(), from));
    stream.set_keep_alive(Some(KeepAlive {
        after: Duration::from_secs(60).into(),
        interval: Duration::from_secs(1).into(),
        probes_max: 3,
    }));

    let bytes = pattern(3 << 20, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(&bytes).expect("the peer reads");
            stream.finish();
        });
        let mut received = Vec::new();
        (&peer).read_to_end(&mut received).expect("the end");
        assert!(received == bytes);
    });
    let info = stream.info().expect("a state");
    assert!(matches!(info.state, State::FinWait1 | State::FinWait2), "{info:?}");
    assert_eq!(info.sent.bytes_sent, bytes.len() as u64);
    assert!(info.segment > 1000 && info.congestion_window > info.segment, "{info:?}");
    assert_eq!(peer.info().expect("a state").received.bytes_received, bytes.len() as u64);
    peer.finish();
    stream.closed();
    // The last state stays.
    assert_eq!(stream.info().expect("a state").sent.bytes_acked, bytes.len() as u64);

    let taken = client.connect_from((ip(77), 0).into(), (IPS[1], 80).into());
    assert!(matches!(taken.err(), Some(Closed::Driver(_))), "the stack has no such address");
}
