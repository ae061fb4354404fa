//! Logs connections, for `-v`.

use litz::Connection;

/// Logs that a connection was established.
pub(crate) fn log_connected(connection: &Connection) {
    let stats = connection.stats();
    tracing::info!(
        local = %connection.local_addr(),
        remote = %connection.remote_addr(),
        handshake = %stats.handshake_time.unwrap_or_default(),
        cipher = stats.session.cipher_suite,
        key_exchange = stats.session.key_exchange,
        "connected"
    );
}

/// Logs the statistics of a connection that has ended.
pub(crate) fn log_ended(connection: &Connection) {
    let stats = connection.stats();
    tracing::info!(
        remote = %connection.remote_addr(),
        packets_sent = stats.send.packets_sent,
        packets_lost = stats.send.packets_lost,
        bytes_sent = stats.send.bytes_sent,
        round_trip = %stats.round_trip,
        round_trip_min = %stats.round_trip_min,
        "disconnected"
    );
}
