// The example of the README, to the letter: a host that echoes, and one that asks it. Start it without an
// argument, then with the address of the first and the fingerprint that it prints.

use std::io::{Read, Write};

use litz::identity::{self, Fingerprint, KeyPair};
use litz::{Endpoint, EndpointConfig, UdpSocketOptions};

type Done = Result<(), Box<dyn std::error::Error>>;

fn serve() -> Done {
    let key = KeyPair::generate()?;
    let sockets = vec![UdpSocketOptions::new("0.0.0.0:4433".parse()?)];
    let tls = identity::server_config(&key, ["echo/1"])?;
    let endpoint = Endpoint::bind(EndpointConfig::default().with_sockets(sockets).with_server_tls(tls))?;
    println!("{}", key.public().fingerprint());
    let connection = endpoint.accept()?;
    let (mut answer, mut question) = connection.accept_bi()?;
    std::io::copy(&mut question, &mut answer)?;
    answer.finish()?;
    // The client closes the connection when it has the answer. Dropping it here would discard that.
    connection.closed();
    Ok(())
}

fn ask(address: &str, server: Fingerprint) -> Done {
    let tls = identity::client_config(&KeyPair::generate()?, &[server], ["echo/1"])?;
    let endpoint = Endpoint::bind(EndpointConfig::default())?;
    let connection = endpoint.connect(address.parse()?, "litz.invalid", tls.config.clone())?;
    let (mut question, mut answer) = connection.open_bi()?;
    question.write_all(b"hello")?;
    question.finish()?;
    let mut words = String::new();
    answer.read_to_string(&mut words)?;
    println!("{words}");
    Ok(())
}

fn main() -> Done {
    match &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        [] => serve(),
        [address, server] => ask(address, server.parse()?),
        _ => Err("give no argument to serve, or ADDRESS:PORT and FINGERPRINT to ask".into()),
    }
}
