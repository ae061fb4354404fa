//! The test protocol over HTTP/3: `GET /N` answers with `N` bytes of the pattern, `PUT /N` with the
//! SHA-256 of its body.

use std::error::Error;
use std::sync::Mutex;
use std::time::Instant;

use aws_lc_rs::digest;
use bytes::{Buf, Bytes};
use h3::server::RequestResolver;
use litz::{Connection, Endpoint};
use serde_json::{Value, json};

use super::{hex, pattern};
use crate::h3 as adapter;
use crate::pattern::CHUNK_LEN;

/// The application protocol.
pub const ALPN: &[u8] = b"h3";

type Failed = Box<dyn Error + Send + Sync>;

/// The chunks of the first `len` bytes of the pattern.
fn chunks(len: u64) -> impl Iterator<Item = Bytes> {
    (0..len).step_by(CHUNK_LEN).map(move |offset| {
        let chunk = (len - offset).min(CHUNK_LEN as u64) as usize;
        Bytes::from_static(pattern(offset, chunk))
    })
}

/// Serves every connection of `endpoint` until that is closed, and keeps the connections.
pub fn serve(endpoint: &Endpoint, connections: &Mutex<Vec<Connection>>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        while let Ok(connection) = endpoint.accept_async().await {
            connections.lock().expect("no thread panics").push(connection.clone());
            // A connection that fails is the client's loss: it reports it.
            tokio::spawn(async move { serve_one(connection).await.is_ok() });
        }
    });
}

async fn serve_one(connection: Connection) -> Result<(), Failed> {
    let mut connection = h3::server::Connection::new(adapter::Connection::new(connection)).await?;
    while let Some(resolver) = connection.accept().await? {
        tokio::spawn(async move { answer(resolver).await.is_ok() });
    }
    Ok(())
}

async fn answer(resolver: RequestResolver<adapter::Connection, Bytes>) -> Result<(), Failed> {
    let (request, mut stream) = resolver.resolve_request().await?;
    stream.send_response(http::Response::new(())).await?;
    if request.method() == http::Method::GET {
        for chunk in chunks(request.uri().path().trim_start_matches('/').parse()?) {
            stream.send_data(chunk).await?;
        }
    } else {
        let mut hash = digest::Context::new(&digest::SHA256);
        while let Some(mut data) = stream.recv_data().await? {
            hash.update(&data.copy_to_bytes(data.remaining()));
        }
        stream.send_data(hex(hash.finish().as_ref()).into()).await?;
    }
    Ok(stream.finish().await?)
}

/// Takes the steps as a client, and returns the events.
///
/// # Errors
/// If one fails.
pub fn run_client(connection: Connection, steps: &[String]) -> Result<Vec<Value>, Failed> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let (mut driver, mut sender) = h3::client::new(adapter::Connection::new(connection)).await?;
        let driving = tokio::spawn(async move { driver.wait_idle().await });
        let mut lines = vec![json!({ "event": "connected", "resumed": false, "early": false, "version": 1 })];
        for step in steps {
            let (name, count) = step.split_once('=').ok_or("a step without a number")?;
            let (count, begun): (u64, _) = (count.parse()?, Instant::now());
            let uri = format!("https://localhost/{count}");
            let upload = if name == "put" { count } else { 0 };
            let method = if name == "put" { http::Method::PUT } else { http::Method::GET };
            let mut stream = sender.send_request(http::Request::builder().method(method).uri(uri).body(())?).await?;
            for chunk in chunks(upload) {
                stream.send_data(chunk).await?;
            }
            stream.finish().await?;
            stream.recv_response().await?;
            let (mut bytes, mut hash, mut answer) = (0, digest::Context::new(&digest::SHA256), Vec::new());
            while let Some(mut data) = stream.recv_data().await? {
                let data = data.copy_to_bytes(data.remaining());
                bytes += data.len() as u64;
                hash.update(&data);
                if name == "put" {
                    answer.extend_from_slice(&data);
                }
            }
            let seconds = begun.elapsed().as_secs_f64();
            let hash = if name == "put" { String::from_utf8(answer)? } else { hex(hash.finish().as_ref()) };
            let bytes = if name == "put" { count } else { bytes };
            lines.push(json!({ "event": name, "bytes": bytes, "sha256": hash, "seconds": seconds }));
        }
        // The last sender closes the connection, without an error.
        drop(sender);
        driving.await?;
        Ok(lines)
    })
}
