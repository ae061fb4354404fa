//! Datagrams (RFC 9221): encrypted, never retransmitted, possibly lost.
//!
//! `cargo run -p litz --example datagrams`
#![expect(clippy::print_stdout, reason = "an example shows what it received")]

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use litz::identity::{KeyPair, client_config, server_config};
use litz::{Endpoint, EndpointConfig};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
    let server_tls = server_config(&server_key, ["datagrams/1"])?;
    let server = Endpoint::bind(EndpointConfig::loopback().with_server_tls(server_tls))?;
    let client = Endpoint::bind(EndpointConfig::loopback())?;
    let tls = client_config(&client_key, &[server_key.public().fingerprint()], ["datagrams/1"])?;
    let ours = client.connect(server.local_addr(), "litz", tls.config.clone())?;
    let theirs = server.accept()?;

    println!("a datagram holds at most {:?} bytes", ours.datagram_len_max());
    // Nothing repeats a datagram that was lost, so the application does if it has to: until the
    // peer has one.
    let received = loop {
        ours.send_datagram(Bytes::from_static(b"position 7"))?;
        if let Some(datagram) = theirs.recv_datagram_timeout(Duration::from_millis(100))? {
            break datagram;
        }
    };
    println!("received {:?}", String::from_utf8_lossy(&received));
    assert_eq!(received, b"position 7"[..]);
    Ok(())
}
