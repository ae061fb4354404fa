//! The asynchronous calls on tokio's runtime. Calls that end in `_async` run on any executor;
//! streams are tokio's `AsyncRead` and `AsyncWrite`.
//!
//! `cargo run -p litz --example tokio`
#![expect(clippy::print_stdout, reason = "an example shows what it received")]

use std::error::Error;

use litz::identity::{KeyPair, client_config, server_config};
use litz::{Endpoint, EndpointConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
    let server_tls = server_config(&server_key, ["tokio/1"])?;
    let server = Endpoint::bind(EndpointConfig::loopback().with_server_tls(server_tls))?;
    let client = Endpoint::bind(EndpointConfig::loopback())?;
    let tls = client_config(&client_key, &[server_key.public().fingerprint()], ["tokio/1"])?;

    let serve = async {
        let connection = server.accept_async().await?;
        let (mut send, mut recv) = connection.accept_bi_async().await?;
        let mut question = String::new();
        recv.read_to_string(&mut question).await?;
        send.write_all(question.to_uppercase().as_bytes()).await?;
        send.finish()?;
        send.wait_finished_async().await?;
        Ok::<_, Box<dyn Error>>(())
    };
    let ask = async {
        let connection = client.connect_async(server.local_addr(), "litz", tls.config.clone()).await?;
        let (mut send, mut recv) = connection.open_bi_async().await?;
        send.write_all(b"how fast?").await?;
        send.finish()?;
        let mut answer = String::new();
        recv.read_to_string(&mut answer).await?;
        // Dropping the connection closes it, also for the server, which still waits for its
        // acknowledgements.
        Ok::<_, Box<dyn Error>>((answer, connection))
    };
    let (served, answer) = tokio::join!(serve, ask);
    served?;
    let (answer, _connection) = answer?;
    println!("received {answer:?}");
    assert_eq!(answer, "HOW FAST?");
    Ok(())
}
