//! Messages with priorities: each is sent with one call and received whole with one call, in any
//! order.
//!
//! `cargo run -p litz --example messages`
#![expect(clippy::print_stdout, reason = "an example shows what it received")]

use std::error::Error;

use litz::identity::{KeyPair, client_config, server_config};
use litz::{Class, Endpoint, EndpointConfig};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
    let server_tls = server_config(&server_key, ["messages/1"])?;
    let server = Endpoint::bind(EndpointConfig::loopback().with_server_tls(server_tls))?;
    let client = Endpoint::bind(EndpointConfig::loopback())?;
    let tls = client_config(&client_key, &[server_key.public().fingerprint()], ["messages/1"])?;
    let ours = client.connect(server.local_addr(), "litz", tls.config.clone())?;
    let theirs = server.accept()?;

    for number in 0..8_u8 {
        ours.send_message(vec![number; 100_000].into())?;
    }
    // A message of a higher class goes before those that still wait.
    ours.send_message_as(b"urgent".to_vec().into(), &Class::of_priority(1))?;

    let mut bytes = 0;
    for _ in 0..9 {
        let message = theirs.recv_message()?;
        bytes += message.len();
        if &message[..] == b"urgent" {
            println!("the urgent message arrived after {} bytes", bytes - message.len());
        }
    }
    println!("received 9 messages, {bytes} bytes");
    assert_eq!(bytes, 8 * 100_000 + 6);
    Ok(())
}
