//! Queries that a program sends with the address of a name server, from a socket that is not connected to it.
//!
//! ```text
//!  program's socket ── sendto: the bytes of the query are copied ──▶ this process ──▶ as for other queries
//!                   ◀── answer, from the socket that stands for the name server ──
//! ```
//!
//! The kernel sends nothing. The program waits for its socket as always, and is told that the answer comes from the
//! name server ([`receive`](super::receive)).

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use intercept::{Call, Thread};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef};

use super::{Names, QUERY_LEN_MAX, StandIn, refuse};
use crate::cli::forward::packet_calls::{self, PacketCall};

/// A packet to a name server.
struct Query {
    server: SocketAddr,
    bytes: Vec<u8>,
}

impl Names {
    /// Whether a program sends to a name server: the kernel sends all else. If a call sends several packets, the
    /// first one decides.
    pub(in crate::cli::forward) fn may_send(&self, call: &Call) -> bool {
        let server = packet_calls::first_receiver(call).ok().flatten();
        server.is_some_and(|server| self.are_asked_at(server))
    }

    /// Answers the queries with which a call begins, in place of the name servers. Returns what the call does; `None`
    /// if it begins with another packet, so that the kernel has to send.
    pub(in crate::cli::forward) fn take_queries(
        self: &Arc<Self>,
        call: &Call,
        is_direct: impl Fn(SocketAddr) -> bool,
    ) -> Option<Result<i64, Errno>> {
        let taken = call.with_caller(|caller| {
            let socket = caller.descriptor(call.argument(0))?;
            let mut result = None;
            for index in 0..packet_calls::count(call) {
                // The program calls again for what is not sent, and that call begins with it.
                let Some(query) = self.query_of(call, caller, index).filter(|query| !is_direct(query.server)) else {
                    break;
                };
                let sent = self.take_query(&socket, query).map(|len| {
                    let told = packet_calls::finish_packet(call, caller, index, len);
                    told.map_err(|_| Errno::FAULT)
                });
                match sent {
                    Ok(Ok(value)) => result = Some(Ok(value)),
                    // An error is that of the call if it is the first packet's.
                    Ok(Err(error)) => {
                        result = result.or(Some(Err(error)));
                        break;
                    }
                    Err(error) => {
                        tracing::info!(%error, "a name server is asked directly");
                        break;
                    }
                }
            }
            Ok(result)
        });
        taken.ok().flatten()
    }

    /// The query that is the packet with this index; `None` if it is the kernel's.
    fn query_of(&self, call: &Call, caller: &Thread, index: u64) -> Option<Query> {
        let read = |at, buffer: &mut [u8]| caller.read(at, buffer);
        let server = packet_calls::receiver(call, index, &read).ok().flatten();
        let server = server.filter(|server| self.are_asked_at(*server))?;
        let bytes = PacketCall::of(call, index, &read).and_then(|packet| packet.bytes(caller, QUERY_LEN_MAX)).ok()?;
        Some(Query { server, bytes })
    }

    /// Answers a query in place of the name server. Returns its length.
    ///
    /// # Errors
    /// Why the kernel has to send it.
    fn take_query(self: &Arc<Self>, socket: &OwnedFd, query: Query) -> io::Result<i64> {
        let Query { server, bytes } = query;
        let server = SocketAddr::new(server.ip().to_canonical(), server.port());
        if SockRef::from(socket).protocol()? != Some(Protocol::UDP) {
            return Err(io::Error::other("the program's socket is none of UDP"));
        }
        let stand_in = self.stand_in(server)?;
        let place = place_of(socket, stand_in.address)?;
        self.note_sent(SockRef::from(socket).cookie()?);
        let len = bytes.len() as i64;
        let (names, StandIn { socket: own, .. }) = (Arc::clone(self), stand_in);
        let Some(turn) = self.queries.turn() else {
            refuse(&own, place, &bytes);
            return Ok(len);
        };
        let held = socket.try_clone()?;
        tokio::spawn(async move {
            names.answer_to(&own, place, server, &bytes, turn).await;
            // Until then no other program could get its port, and the answer.
            drop(held);
        });
        Ok(len)
    }
}

/// Where a program's socket receives what comes from `own`, an address of loopback. It gets a port if it has none
/// yet, as it would by sending.
///
/// # Errors
/// If it cannot receive from there, so that the kernel knows better what to do with its packet.
fn place_of(socket: &OwnedFd, own: SocketAddr) -> io::Result<SocketAddr> {
    let unfit = |why: &str| io::Error::other(format!("the program's socket {why}"));
    let reference = SockRef::from(socket);
    let is_ipv6 = reference.domain()? == Domain::IPV6;
    if own.is_ipv6() != is_ipv6 && (!is_ipv6 || reference.only_v6()?) {
        return Err(unfit("has another address family"));
    }
    // The program asks for that link.
    if reference.device()?.is_some() {
        return Err(unfit("is bound to a device"));
    }
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    if reference.peer_addr().ok().and_then(|peer| peer.as_socket()).is_some_and(|peer| canonical(peer) != own) {
        return Err(unfit("is connected to another host"));
    }
    let local = || reference.local_addr()?.as_socket().ok_or_else(|| unfit("has no address"));
    let mut address = local()?;
    if address.port() == 0 {
        // Another thread of the program may have been faster.
        let _has_one = reference.bind(&address.into());
        address = local()?;
    }
    let mut address = canonical(address);
    if address.ip().is_unspecified() {
        address.set_ip(own.ip());
    }
    if address.port() == 0 || address.is_ipv4() != own.is_ipv4() {
        return Err(unfit("receives elsewhere"));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "stands for the socket of a program")]
    fn socket(domain: Domain, bound: Option<&str>) -> OwnedFd {
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None).expect("a socket");
        if let Some(bound) = bound {
            socket.bind(&bound.parse::<SocketAddr>().expect("an address").into()).expect("a port");
        }
        socket.into()
    }

    #[test]
    fn a_socket_receives_at_loopback_with_a_port_of_its_own() {
        let own: SocketAddr = "127.0.0.1:7000".parse().expect("an address");
        let unbound = socket(Domain::IPV4, None);
        let place = place_of(&unbound, own).expect("a place");
        assert!(place.ip() == own.ip() && place.port() != 0);
        // The same one for the next query.
        assert_eq!(place_of(&unbound, own).expect("a place"), place);
        let bound = socket(Domain::IPV4, Some("127.0.0.2:0"));
        assert_eq!(place_of(&bound, own).expect("a place").ip().to_string(), "127.0.0.2");
        assert!(place_of(&unbound, "[::1]:7000".parse().expect("an address")).is_err());
        SockRef::from(&bound).connect(&"127.0.0.1:9".parse::<SocketAddr>().expect("an address").into()).expect("UDP");
        assert!(place_of(&bound, own).is_err());
    }
}
