//! The clients of a relay, each with its own socket towards the server.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use net::{UdpSocket, UdpSocketOptions};
use units::{Duration, Instant};

use crate::poller::Poller;

/// Largest number of simultaneous clients per relay link. Further clients are rejected unless one
/// has been idle for two minutes.
pub const CLIENTS_MAX: usize = 64;

/// A client that has sent nothing for this time can be replaced by another: the shortest time for
/// which NATs keep idle UDP mappings (RFC 4787, section 4.3).
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Poller source of the first client's socket; the front socket has the source before it.
pub(super) const FIRST_CLIENT_SOURCE: usize = 1;

/// Identifies a client: its slot, and the generation of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientId {
    pub(super) slot: usize,
    generation: u64,
}

pub(super) struct Client {
    pub(super) address: SocketAddr,
    pub(super) socket: UdpSocket,
    pub(super) is_readable: bool,
    /// Local address of the socket, which depends on the server's address.
    local: IpAddr,
    sent_at: Instant,
    generation: u64,
}

#[derive(Default)]
pub(super) struct Clients {
    slots: Vec<Client>,
    by_address: BTreeMap<SocketAddr, usize>,
    /// Number of clients so far.
    count: u64,
}

impl Clients {
    /// Returns the client at `address`, which sends data to `server` at `now`. Adds a new client if
    /// there is space.
    ///
    /// # Errors
    /// `QuotaExceeded` if there is no space; otherwise the system's error from opening a socket.
    pub(super) fn admit(
        &mut self,
        address: SocketAddr,
        server: SocketAddr,
        now: Instant,
        poller: &Poller,
    ) -> io::Result<ClientId> {
        let local = local_for(server);
        if let Some(&slot) = self.by_address.get(&address) {
            let client = &mut self.slots[slot];
            client.sent_at = now;
            if client.local != local {
                // The server has moved to an address that this socket cannot reach.
                client.socket = open(local, slot, poller)?;
                client.local = local;
            }
            return Ok(ClientId { slot, generation: client.generation });
        }
        let slot = self.free_slot(now).ok_or(io::ErrorKind::QuotaExceeded)?;
        let socket = open(local, slot, poller)?;
        let generation = self.count;
        let client = Client { address, socket, is_readable: false, local, sent_at: now, generation };
        self.count += 1;
        if slot == self.slots.len() {
            self.slots.push(client);
        } else {
            self.by_address.remove(&self.slots[slot].address);
            self.slots[slot] = client;
        }
        self.by_address.insert(address, slot);
        Ok(ClientId { slot, generation })
    }

    /// Returns the client, unless its slot was given to another.
    pub(super) fn get_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        self.slots.get_mut(id.slot).filter(|client| client.generation == id.generation)
    }

    pub(super) fn readable(&mut self, slot: usize) {
        if let Some(client) = self.slots.get_mut(slot) {
            client.is_readable = true;
        }
    }

    /// Returns the clients with readable sockets.
    pub(super) fn readable_mut(&mut self) -> impl Iterator<Item = (ClientId, &mut Client)> {
        self.slots
            .iter_mut()
            .enumerate()
            .filter(|(_, client)| client.is_readable)
            .map(|(slot, client)| (ClientId { slot, generation: client.generation }, client))
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    fn free_slot(&self, now: Instant) -> Option<usize> {
        if self.slots.len() < CLIENTS_MAX {
            return Some(self.slots.len());
        }
        let (slot, longest) = self.slots.iter().enumerate().min_by_key(|(_, client)| client.sent_at)?;
        (now.saturating_since(longest.sent_at) >= IDLE_TIMEOUT).then_some(slot)
    }
}

/// Returns the local address from which `server` can be reached: loopback for loopback.
const fn local_for(server: SocketAddr) -> IpAddr {
    match server {
        SocketAddr::V4(server) if server.ip().is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(server) if server.ip().is_loopback() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

fn open(local: IpAddr, slot: usize, poller: &Poller) -> io::Result<UdpSocket> {
    let socket = UdpSocket::open(&UdpSocketOptions::new(SocketAddr::new(local, 0))).map_err(io::Error::other)?;
    poller.watch(FIRST_CLIENT_SOURCE + slot, socket.as_raw_fd())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use net::MonotonicClock;

    use super::*;

    const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

    fn client(number: usize) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 10_000 + number as u16))
    }

    #[test]
    fn a_full_table_rejects_clients_until_one_is_idle() {
        let (poller, _waker) = Poller::new(MonotonicClock::start()).unwrap();
        let mut clients = Clients::default();
        let first = clients.admit(client(0), SERVER, Instant::ZERO, &poller).unwrap();
        let later = Instant::ZERO + Duration::from_secs(1);
        for number in 1..CLIENTS_MAX {
            clients.admit(client(number), SERVER, later, &poller).unwrap();
        }
        let refused = clients.admit(client(CLIENTS_MAX), SERVER, later, &poller).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
        assert!(clients.get_mut(first).is_some());
        let much_later = Instant::ZERO + IDLE_TIMEOUT;
        let new = clients.admit(client(CLIENTS_MAX), SERVER, much_later, &poller).unwrap();
        assert!(clients.get_mut(first).is_none(), "its slot was given to another client");
        assert_eq!(clients.get_mut(new).unwrap().address, client(CLIENTS_MAX));
        // Only the first client had been idle for that long.
        assert!(clients.admit(client(0), SERVER, much_later, &poller).is_err());
        assert_eq!(clients.count(), CLIENTS_MAX as u64 + 1);
    }

    #[test]
    fn a_client_keeps_its_slot_and_its_socket_follows_the_server() {
        let (poller, _waker) = Poller::new(MonotonicClock::start()).unwrap();
        let mut clients = Clients::default();
        let id = clients.admit(client(0), SERVER, Instant::ZERO, &poller).unwrap();
        let descriptor = clients.get_mut(id).unwrap().socket.as_raw_fd();
        let again = clients.admit(client(0), SERVER, Instant::ZERO, &poller).unwrap();
        assert_eq!((again, clients.get_mut(id).unwrap().socket.as_raw_fd()), (id, descriptor));
        let elsewhere = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
        assert_eq!(clients.admit(client(0), elsewhere, Instant::ZERO, &poller).unwrap(), id);
        assert_eq!(clients.get_mut(id).unwrap().local, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    }
}
