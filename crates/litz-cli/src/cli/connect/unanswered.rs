//! Settings of this host that may be why a path does not answer.

use std::net::IpAddr;

use litz::paths::advice;
use litz::{Connection, Interface, PathState, UdpSocketOptions};

use crate::cli::warning::Warning;

/// The devices and addresses of a connection's paths, by the index of their socket.
pub(super) struct PathSockets(Vec<(String, IpAddr)>);

impl PathSockets {
    /// Of sockets with these options.
    pub(super) fn of<'a>(sockets: impl Iterator<Item = &'a UdpSocketOptions>) -> Self {
        Self(sockets.map(|socket| (socket.device.clone().unwrap_or_default(), socket.bind.ip())).collect())
    }

    /// Warns of settings of devices over which nothing has arrived yet.
    pub(super) fn warn_of_unanswered(&self, connection: &Connection, warn: impl Fn(Warning, &str)) {
        let stats = connection.stats();
        let is_unanswered = |socket: usize| {
            let mut paths = stats.paths.iter().filter(|path| usize::from(path.addresses.socket) == socket);
            paths.any(|path| path.state == PathState::Validating && path.bytes_received == 0)
        };
        let silent: Vec<&str> =
            (0..).zip(&self.0).filter(|(index, _)| is_unanswered(*index)).map(|(_, (device, _))| &**device).collect();
        if silent.is_empty() {
            return;
        }
        let interfaces = match net::interfaces() {
            Ok(interfaces) => interfaces,
            Err(error) => return tracing::warn!(%error, "no advice on paths that do not answer"),
        };
        for sentence in self.advice_on(&silent, &interfaces) {
            warn(Warning::PathUnanswered, &format!("no answer over a link: {sentence}"));
        }
    }

    /// The advice that names one of these devices.
    fn advice_on(&self, silent: &[&str], interfaces: &[Interface]) -> Vec<String> {
        let used: Vec<(&str, IpAddr)> = self.0.iter().map(|(device, ip)| (device.as_str(), *ip)).collect();
        let mut advice = advice::advise_here(interfaces, &used);
        // Each sentence begins with the device that it is about.
        advice.retain(|sentence| silent.iter().any(|device| sentence.split(' ').next() == Some(device)));
        advice
    }
}
