//! HTTP/3 on Litz at both ends. The matrix tries each end with another implementation.

use std::sync::Mutex;

use litz::{Connection, Endpoint, EndpointConfig};
use litz_interop::certificates::Made;
use litz_interop::matrix::{hex, http3, pattern_hash};

#[test]
fn requests_and_answers_of_a_megabyte_arrive_whole() {
    let (server_tls, client_tls) = Made::new().configs_for(http3::ALPN);
    let server = Endpoint::bind(EndpointConfig::loopback().with_server_tls(server_tls)).expect("a socket");
    let client = Endpoint::bind(EndpointConfig::loopback()).expect("a socket");
    let connections: Mutex<Vec<Connection>> = Mutex::default();
    let lines = std::thread::scope(|scope| {
        scope.spawn(|| http3::serve(&server, &connections));
        let connection = client.connect(server.local_addr(), "localhost", client_tls).expect("a handshake");
        let steps = ["get=1000000", "put=1000000", "get=0"].map(str::to_owned);
        let lines = http3::run_client(connection, &steps);
        server.close();
        lines.expect("every step succeeds")
    });
    let expected = [("get", 1_000_000), ("put", 1_000_000), ("get", 0)];
    assert_eq!(lines.len(), 1 + expected.len(), "{lines:?}");
    for (line, (name, bytes)) in lines[1..].iter().zip(expected) {
        let hash = hex(pattern_hash(bytes).as_ref());
        assert_eq!((line["event"].as_str(), line["sha256"].as_str()), (Some(name), Some(hash.as_str())), "{line}");
    }
}
