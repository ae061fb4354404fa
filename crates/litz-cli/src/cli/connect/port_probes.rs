//! Ends the wait for a connection if the hosts of all candidates say that the port is closed.

use std::net::SocketAddr;

use litz::UdpSocketOptions;
use litz::paths::closed_port::ClosedPortWatch;
use net::PortProbe;
use units::Instant;

/// Asks the candidates for a connection, while none has answered.
pub(super) struct PortProbes {
    probes: Vec<PortProbe>,
    watch: ClosedPortWatch,
}

impl PortProbes {
    /// Probes from these sockets to these addresses. One to which there is no route is left out: it cannot
    /// answer.
    pub(super) fn open<'o>(candidates: impl Iterator<Item = (&'o UdpSocketOptions, SocketAddr)>) -> Self {
        let probes = candidates.filter_map(|(socket, remote)| PortProbe::open(socket, remote).ok()).collect();
        Self { probes, watch: ClosedPortWatch::new(Instant::ZERO) }
    }

    /// Asks once more; true if every host has said several times in a row that the port is closed. A single
    /// such answer may come from a receiver that is being started again.
    pub(super) fn are_closed(&mut self) -> bool {
        let refused = self.probes.iter().filter(|probe| probe.ask()).count();
        self.watch.on_answers(self.probes.len(), refused)
    }
}
