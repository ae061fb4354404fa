//! An echo over one bidirectional stream, both ends in this process.
//!
//! `cargo run -p litz --example echo`
#![expect(clippy::print_stdout, reason = "an example shows what it received")]

use std::error::Error;
use std::io::{self, Read, Write};

use litz::identity::{KeyPair, client_config, server_config};
use litz::{Endpoint, EndpointConfig};

#[expect(clippy::disallowed_methods, reason = "an application starts threads of its own")]
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // Each host has a key pair. The client knows the fingerprint of the server's key.
    let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
    let server_tls = server_config(&server_key, ["echo/1"])?;
    let server = Endpoint::bind(EndpointConfig::loopback().with_server_tls(server_tls))?;
    let address = server.local_addr();
    let serving = std::thread::spawn(move || serve(&server));

    let client = Endpoint::bind(EndpointConfig::loopback())?;
    let tls = client_config(&client_key, &[server_key.public().fingerprint()], ["echo/1"])?;
    let connection = client.connect(address, "litz", tls.config.clone())?;
    let (mut send, mut recv) = connection.open_bi()?;
    send.write_all(b"hello")?;
    send.finish()?;
    let mut echo = String::new();
    recv.read_to_string(&mut echo)?;
    println!("received {echo:?} from {}", connection.remote_addr());
    assert_eq!(echo, "hello");
    serving.join().expect("the server does not panic")?;
    Ok(())
}

fn serve(server: &Endpoint) -> io::Result<()> {
    let connection = server.accept()?;
    let (mut send, mut recv) = connection.accept_bi()?;
    io::copy(&mut recv, &mut send)?;
    send.finish()?;
    // Dropping the connection closes it and discards what is in flight: wait until the client has
    // everything.
    send.wait_finished()?;
    Ok(())
}
