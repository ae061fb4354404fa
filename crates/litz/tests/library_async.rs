//! Asynchronous calls on tokio's runtime: tokio runs the test, not the library.

#![expect(clippy::disallowed_methods, reason = "these are tests of real threads")]

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use litz::{Closed, OpenError, Placement, ReadError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::{TEST_TIMEOUT, Variant, Wire, World, pattern};

/// Returns the output of `future`, or `None` if it takes longer than `span`. A thread is the timer.
async fn timeout<F: Future>(span: Duration, future: F) -> Option<F::Output> {
    let over = Arc::new(AtomicBool::new(false));
    let mut timer = None;
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        if over.load(Ordering::SeqCst) {
            return Poll::Ready(None);
        }
        timer.get_or_insert_with(|| {
            let (over, waker) = (Arc::clone(&over), context.waker().clone());
            std::thread::spawn(move || {
                std::thread::sleep(span);
                over.store(true, Ordering::SeqCst);
                waker.wake();
            })
        });
        Poll::Pending
    })
    .await
}

fn world(placement: Placement) -> World {
    World::new(Variant { wire: Wire::Udp, placement })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_echo_over_one_connection() {
    const TASKS: u64 = 50;
    let world = world(Placement::Thread);
    let server = world.server(world.config());
    let address = server.local_addr();
    let serving = tokio::spawn(async move {
        let connection = server.accept_async().await.unwrap();
        while let Ok((mut send, mut recv)) = connection.accept_bi_async().await {
            tokio::spawn(async move {
                tokio::io::copy(&mut recv, &mut send).await.unwrap();
                send.shutdown().await.unwrap();
                send.wait_finished_async().await.unwrap();
            });
        }
        connection.closed_async().await
    });
    let client = world.client(world.config());
    let connection = client.connect_async(address, "host", world.client_tls.clone()).await.unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let connection = connection.clone();
            tokio::spawn(async move {
                let sent = pattern(100_000, task);
                let (mut send, mut recv) = connection.open_bi_async().await.unwrap();
                // Both at once: the echo comes while the question goes.
                let question = async {
                    send.write_all(&sent).await.unwrap();
                    send.finish().unwrap();
                };
                let answer = async {
                    let mut all = Vec::new();
                    recv.read_to_end(&mut all).await.unwrap();
                    all
                };
                let ((), back) = tokio::join!(question, answer);
                assert!(back == sent, "task {task} got something else back");
            })
        })
        .collect();
    for task in tasks {
        timeout(TEST_TIMEOUT, task).await.expect("a wake-up was lost").unwrap();
    }
    connection.close(5, "enough");
    assert_eq!(serving.await.unwrap(), Closed::ByPeer { code: 5, reason: "enough".to_owned() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_datagrams_and_chunks_have_asynchronous_forms() {
    let world = world(Placement::Thread);
    let server = world.server(world.config());
    let client = world.client(world.config());
    let (ours, theirs) = tokio::join!(
        client.connect_async(server.local_addr(), "host", world.client_tls.clone()),
        server.accept_async()
    );
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
    ours.send_message_async(Bytes::from_static(b"message")).await.unwrap();
    assert_eq!(theirs.recv_message_async().await.unwrap(), Bytes::from_static(b"message"));
    ours.flush_messages_async().await.unwrap();
    ours.send_datagram(Bytes::from_static(b"datagram")).unwrap();
    assert_eq!(theirs.recv_datagram_async().await.unwrap(), Bytes::from_static(b"datagram"));
    let mut send = theirs.open_uni_async().await.unwrap();
    let receiving = async {
        let mut recv = ours.accept_uni_async().await.unwrap();
        let first = recv.read_chunk_async().await.unwrap();
        assert_eq!((first, recv.read_chunk_async().await.unwrap()), (Some(Bytes::from_static(b"chunk")), None));
    };
    let sending = async {
        send.write_chunk_async(Bytes::from_static(b"chunk")).await.unwrap();
        send.finish().unwrap();
        send.wait_finished_async().await.unwrap();
    };
    tokio::join!(sending, receiving);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_leave_nothing_behind() {
    let world = world(Placement::Thread);
    let mut config = world.config();
    config.transport.max_concurrent_bidi_streams = 1;
    let server = world.server(config);
    let client = world.client(world.config());
    let (ours, theirs) = tokio::join!(
        client.connect_async(server.local_addr(), "host", world.client_tls.clone()),
        server.accept_async()
    );
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
    let (mut first, _reading) = ours.open_bi_async().await.unwrap();
    first.write_all(b"1").await.unwrap();
    // The peer allows no second stream: both calls are dropped.
    for _ in 0..2 {
        let given_up = timeout(Duration::from_millis(20), ours.open_bi_async()).await;
        assert!(given_up.is_none());
    }
    assert!(timeout(Duration::from_millis(20), theirs.accept_uni_async()).await.is_none());
    let (mut answer, mut question) = theirs.accept_bi_async().await.unwrap();
    first.finish().unwrap();
    let mut all = Vec::new();
    question.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"1");
    answer.finish().unwrap();
    // The next call gets the stream that the dropped calls did not take: number one, not three.
    let (second, _) = timeout(TEST_TIMEOUT, ours.open_bi_async()).await.unwrap().unwrap();
    assert_eq!(second.id().index(), 1);
}

#[test]
fn without_a_thread_asynchronous_calls_are_refused_with_a_reason() {
    let world = world(Placement::Inline);
    let server = world.server(world.config());
    let address = server.local_addr();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let connection = server.accept().unwrap();
            let (mut send, _recv) = connection.open_bi().unwrap();
            std::io::Write::write_all(&mut send, b"hello").unwrap();
            connection.closed();
        });
        let client = world.client(world.config());
        let connection = world.connect(&client, address);
        let (_send, mut recv) = connection.accept_bi().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let is_why = |closed: &Closed| matches!(closed, Closed::Configuration(why) if why.contains("Inline"));
            let connecting = client.connect_async(address, "host", world.client_tls.clone()).await;
            assert!(is_why(&connecting.unwrap_err()));
            let Err(OpenError::ConnectionClosed(why)) = connection.open_bi_async().await else { panic!("it opened") };
            assert!(is_why(&why));
            let Err(ReadError::ConnectionClosed(why)) = recv.read_chunk_async().await else { panic!("it read") };
            assert!(is_why(&why));
            let error = recv.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        });
        assert_eq!(recv.read_chunk().unwrap(), Some(Bytes::from_static(b"hello")));
        connection.close(0, "");
    });
}
