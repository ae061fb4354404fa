//! [`Network`]: the stack that is the host in the tunnel.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forward::address::{Address, Host};
use forward::message::{Failure, Reason};
use forwarding::dial::{DIAL_TIME, first_connected, resolve, to_try};
use litz::tcp::{IpDevice, KeepAlive, TcpConfig, TcpStack, TcpStackConfig, TcpStream, UdpPort};
use net::tun::Tun;
use tokio::time::timeout;
use tunnel::policy::Terms;
use tunnel_end::terminate::ends::reason;
use units::Duration;

use super::names;
use crate::cli::serving::sandbox::lookup_advice;

/// A peer that vanishes is noticed after five minutes.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { after: Duration::from_secs(120), interval: Duration::from_secs(30), probes_max: 6 };

/// Our TCP and UDP, with the addresses that the server has assigned.
pub(super) struct Network {
    stack: TcpStack,
    addresses: Vec<IpAddr>,
    /// Name servers that are reached through the tunnel. Without any, this host looks names up.
    name_servers: Mutex<Vec<IpAddr>>,
}

impl Network {
    /// Starts on `tun`. Its thread polls for `busy_poll` before it sleeps.
    ///
    /// # Errors
    /// A message for the user: the system refuses a thread.
    pub(super) fn start(tun: Tun, terms: &Terms, busy_poll: Duration) -> Result<Self, String> {
        let addresses: Vec<IpAddr> = terms.addresses.iter().map(|(address, _)| *address).collect();
        let first = *addresses.first().ok_or("the server has assigned no address")?;
        let tcp = TcpConfig { mtu: terms.mtu.into(), keep_alive: Some(KEEP_ALIVE), ..TcpConfig::default() };
        let config = TcpStackConfig::new(IpDevice::kernel(tun, first), &addresses)
            .with_tcp(tcp)
            .with_busy_poll(busy_poll.into());
        let stack = TcpStack::start(config).map_err(|error| error.to_string())?;
        Ok(Self { stack, addresses, name_servers: Mutex::new(terms.name_servers.clone()) })
    }

    /// Looks up names at these servers from now on.
    pub(super) fn use_name_servers(&self, servers: &[IpAddr]) {
        servers.clone_into(&mut self.name_servers());
    }

    fn name_servers(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        self.name_servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of a target that the stack can reach, those to try first in front.
    ///
    /// # Errors
    /// If it has none. The text is for the user.
    pub(super) async fn addresses_of(&self, target: &Address) -> Result<Vec<SocketAddr>, Failure> {
        let name_servers = self.name_servers().clone();
        let mut found = match &target.host {
            Host::Name(name) if !name_servers.is_empty() => {
                let found = names::look_up(&self.stack, &name_servers, name.as_str()).await?;
                found.into_iter().map(|ip| SocketAddr::new(ip, target.port)).collect()
            }
            _ => resolve(target, lookup_advice).await?,
        };
        found.retain(|target| self.addresses.iter().any(|own| own.is_ipv4() == target.is_ipv4()));
        if found.is_empty() {
            let why = format!("{} has no address of a kind that this host has in the tunnel", target.host);
            return Err(Failure::new(Reason::NameNotFound, &why));
        }
        Ok(to_try(found))
    }

    /// Connects to a target.
    ///
    /// # Errors
    /// The reason of the last address that was tried.
    pub(super) async fn connect(&self, target: &Address) -> Result<TcpStream, Failure> {
        let addresses = self.addresses_of(target).await?;
        let stack = self.stack.clone();
        let connect = move |address| {
            let stack = stack.clone();
            async move {
                let connected = stack.connect_async(address).await;
                connected
                    .map_err(|closed| Failure::new(reason(&closed), &format!("cannot connect to {address}: {closed}")))
            }
        };
        let connected = timeout(DIAL_TIME, first_connected(addresses, connect)).await;
        connected.unwrap_or_else(|_| Err(Failure::new(Reason::TimedOut, &format!("{target} does not answer"))))
    }

    /// Binds a UDP port that the stack chooses.
    ///
    /// # Errors
    /// If none is free.
    pub(super) fn bind(&self) -> Result<UdpPort, litz::tcp::UdpError> {
        self.stack.bind_udp(0)
    }

    /// Resets all connections.
    pub(super) fn close(&self) {
        self.stack.close();
    }
}
