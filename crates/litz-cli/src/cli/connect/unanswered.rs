//! Settings of this host that may be why a path does not answer.

use std::net::IpAddr;

use litz::paths::advice;
use litz::{Connection, Interface, PathState};
use quic_endpoint::local_ends::LocalEnd;

use crate::cli::warning::Warning;

/// Warns of settings of devices over which nothing has arrived yet. `ends` are those of all sockets.
pub(super) fn warn_of_unanswered(ends: &[Option<LocalEnd>], connection: &Connection, warn: impl Fn(Warning, &str)) {
    let stats = connection.stats();
    let is_unanswered = |socket: usize| {
        let mut paths = stats.paths.iter().filter(|path| usize::from(path.addresses.socket) == socket);
        paths.any(|path| path.state == PathState::Validating && path.bytes_received == 0)
    };
    let bound = ends.iter().enumerate().filter_map(|(index, end)| Some((index, end.as_ref()?)));
    let used: Vec<(usize, &str, IpAddr)> =
        bound.map(|(index, end)| (index, end.device.as_deref().unwrap_or_default(), end.ip)).collect();
    let silent: Vec<&str> =
        used.iter().filter(|(index, ..)| is_unanswered(*index)).map(|(_, device, _)| *device).collect();
    if silent.is_empty() {
        return;
    }
    let interfaces = match net::interfaces() {
        Ok(interfaces) => interfaces,
        Err(error) => return tracing::warn!(%error, "no advice on paths that do not answer"),
    };
    let used: Vec<(&str, IpAddr)> = used.iter().map(|(_, device, ip)| (*device, *ip)).collect();
    for sentence in advice_on(&used, &silent, &interfaces) {
        warn(Warning::PathUnanswered, &format!("no answer over a link: {sentence}"));
    }
}

/// The advice on the links in use that names one of the silent devices.
fn advice_on(used: &[(&str, IpAddr)], silent: &[&str], interfaces: &[Interface]) -> Vec<String> {
    let mut advice = advice::advise_here(interfaces, used);
    // Each sentence begins with the device that it is about.
    advice.retain(|sentence| silent.iter().any(|device| sentence.split(' ').next() == Some(device)));
    advice
}
