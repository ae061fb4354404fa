//! The figures of a run, in the units in which they are shown.

use super::run::Run;

/// Reads a figure of a run; `None` if the run has no such figure.
pub type Reader = fn(&Run) -> Option<f64>;

/// The figures that the table shows.
pub const SHOWN: [(&str, Reader); 16] = [
    ("goodput, Gb/s", goodput_gbps),
    ("sent, Gb/s", |run| run.client.sent_bps.map(|bps| bps / 1e9)),
    ("packets lost", |run| run.server.packets_lost.map(|lost| lost as f64)),
    ("CPU s/GB, sender", |run| run.client.cpu_s_per_gb),
    ("CPU s/GB, receiver", |run| run.server.cpu_s_per_gb),
    ("CPU s/GB, both", cpu_s_per_gb),
    ("connections/s and core", connections_per_cpu_s),
    ("median, us", median_us),
    ("p99, us", p99_us),
    ("server KiB/connection", server_kib),
    ("client KiB/connection", client_kib),
    ("file, Gb/s", |run| run.client.file.as_ref().map(|file| file.litz_bps / 1e9)),
    ("bound, Gb/s", |run| run.client.file.as_ref().map(|file| file.bound_bps / 1e9)),
    ("network, Gb/s", |run| run.client.file.as_ref().map(|file| file.network_bps / 1e9)),
    ("hash, Gb/s", |run| run.client.file.as_ref().map(|file| file.hash_bps / 1e9)),
    ("copy, Gb/s", |run| run.client.file.as_ref().map(|file| file.copy_bps / 1e9)),
];

pub fn goodput_gbps(run: &Run) -> Option<f64> {
    run.server.goodput_bps.map(|bps| bps / 1e9)
}

/// Of both sides together.
pub fn cpu_s_per_gb(run: &Run) -> Option<f64> {
    Some(run.client.cpu_s_per_gb? + run.server.cpu_s_per_gb?)
}

/// Connections that one core could make and serve in a second.
pub fn connections_per_cpu_s(run: &Run) -> Option<f64> {
    Some((run.client.cpu_s_per_connection? + run.server.cpu_s_per_connection?).recip())
}

pub fn median_us(run: &Run) -> Option<f64> {
    run.client.median_us
}

pub fn p99_us(run: &Run) -> Option<f64> {
    run.client.p99_us
}

pub fn server_kib(run: &Run) -> Option<f64> {
    run.server.bytes_per_connection.map(kib)
}

pub fn client_kib(run: &Run) -> Option<f64> {
    run.client.bytes_per_connection.map(kib)
}

/// The rate of a file's transfer as a share of the machine's bound.
pub fn file_of_bound(run: &Run) -> Option<f64> {
    run.client.file.as_ref().map(|file| file.litz_bps / file.bound_bps)
}

fn kib(bytes: f64) -> f64 {
    bytes / 1024.0
}
