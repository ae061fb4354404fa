//! HTTP/3 on Litz: a server that greets, and a client that asks it, in one process.
//!
//! `cargo run --example http3`

use bytes::{Buf, Bytes};
use litz::{Endpoint, EndpointConfig};
use litz_interop::certificates::Made;
use litz_interop::h3::Connection;

type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let (server_tls, client_tls) = Made::new().configs_for(b"h3");
    let server = Endpoint::bind(EndpointConfig::loopback().with_server_tls(server_tls))?;
    let address = server.local_addr();
    let serving = tokio::spawn(async move { serve(&server).await });

    let client = Endpoint::bind(EndpointConfig::loopback())?;
    let connection = client.connect_async(address, "localhost", client_tls).await?;
    let (mut driver, mut requests) = h3::client::new(Connection::new(connection)).await?;
    let driving = tokio::spawn(async move { driver.wait_idle().await });
    let request = http::Request::get("https://localhost/").body(())?;
    let mut stream = requests.send_request(request).await?;
    stream.finish().await?;
    println!("{}", stream.recv_response().await?.status());
    while let Some(mut data) = stream.recv_data().await? {
        println!("{}", String::from_utf8_lossy(&data.copy_to_bytes(data.remaining())));
    }
    // The last sender of requests closes the connection.
    drop(requests);
    println!("{}", driving.await?);
    serving.abort();
    Ok(())
}

/// Answers all requests of all connections.
async fn serve(server: &Endpoint) -> Result<(), Failed> {
    loop {
        let connection = server.accept_async().await?;
        let mut connection = h3::server::Connection::<_, Bytes>::new(Connection::new(connection)).await?;
        while let Some(resolver) = connection.accept().await? {
            let (request, mut stream) = resolver.resolve_request().await?;
            stream.send_response(http::Response::new(())).await?;
            stream.send_data(format!("{} {} on Litz", request.method(), request.uri().path()).into()).await?;
            stream.finish().await?;
        }
    }
}
