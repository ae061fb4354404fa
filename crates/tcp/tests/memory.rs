//! The memory of an idle connection, in bytes counted by the allocator. It has a separate binary,
//! because nothing else may allocate.

mod support;

use std::sync::Arc;

use support::heap_meter::Meter;
use support::{Pair, link};
use tcp::Connection;
use units::Duration;

/// Memory limit of an idle connection in bytes, its own size included.
const IDLE_MAX: usize = 2048;

/// Returns the number of bytes that a connection takes, measured by dropping it.
fn bytes_of(connection: Connection) -> usize {
    let meter = Meter::start();
    drop(connection);
    meter.freed() + size_of::<Connection>()
}

#[test]
fn an_idle_connection_takes_two_kilobytes_whatever_it_has_transferred() {
    for (len, side) in [0, 300, 10_000_000].into_iter().flat_map(|len| [(len, 0), (len, 1)]) {
        let mut pair = Pair::new(1, &link(100, 5));
        // Connections share their configuration.
        let _configs = pair.hosts.each_ref().map(|host| Arc::clone(&host.config));
        pair.connect();
        if len > 0 {
            pair.transfer_part(0, len);
            pair.transfer_part(1, len);
        }
        pair.run_for(Duration::from_secs(5));
        let connection = pair.hosts[side].connection.take().expect("there is a connection");
        let bytes = bytes_of(connection);
        assert!(bytes <= IDLE_MAX, "{bytes} after {len} bytes, side {side}");
        assert!(bytes > 1000, "{bytes}: the meter counts nothing");
    }
}
