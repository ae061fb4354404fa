//! One connection over two paths, here two pairs of sockets on the loopback device. On a host with
//! several links each socket is bound to a link; `litz::paths` finds the pairs of addresses that
//! are worth using.
//!
//! `cargo run -p litz --example multipath`
#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use litz::identity::{KeyPair, client_config, server_config};
use litz::{Endpoint, EndpointConfig, PathEvent, PathState, Strategy, TransportConfig, UdpSocketOptions};

const BYTES: usize = 8 << 20;

#[expect(clippy::disallowed_methods, reason = "an application starts threads of its own")]
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
    // Both ends have two sockets and allow two paths. These paths are alike, so their packets take
    // turns.
    let socket = UdpSocketOptions::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
    let config = EndpointConfig::default()
        .with_sockets(vec![socket; 2])
        .with_transport(TransportConfig::default().with_max_paths(2).with_scheduler(Strategy::RoundRobin));
    let server_tls = server_config(&server_key, ["multipath/1"])?;
    let server = Endpoint::bind(config.clone().with_server_tls(server_tls))?;
    let addresses = server.local_addrs().to_vec();
    let client = Endpoint::bind(config)?;
    let tls = client_config(&client_key, &[server_key.public().fingerprint()], ["multipath/1"])?;

    // The handshake uses the first path. The second one begins at the second socket.
    let ours = client.connect_from(0, addresses[0], "litz", tls.config.clone())?;
    let theirs = server.accept()?;
    ours.open_path(1, addresses[1], false)?;
    let mut second = None;
    loop {
        match ours.next_path_event()? {
            PathEvent::Opened { path, .. } => second = Some(path),
            PathEvent::State { path, state: PathState::Active } if second == Some(path) => break,
            PathEvent::Refused { error, .. } => return Err(error.into()),
            _ => {}
        }
    }

    let sending = std::thread::spawn(move || -> std::io::Result<_> {
        let mut send = ours.open_uni()?;
        send.write_all(&vec![7; BYTES])?;
        send.finish()?;
        send.wait_finished()?;
        Ok(ours.stats().paths)
    });
    let mut received = Vec::new();
    theirs.accept_uni()?.read_to_end(&mut received)?;
    assert_eq!(received, vec![7; BYTES]);
    for path in sending.join().expect("the sender does not panic")? {
        println!("path {:?}: {} packets acknowledged", path.id, path.packets_acked);
        assert!(path.packets_acked > 100, "{path:?}");
    }
    Ok(())
}
