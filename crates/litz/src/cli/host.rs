//! This host: its key, its state, its addresses, its wall clock.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use litz::identity::store::default_state_dir;
use litz::identity::{KeyPair, TicketStore};

/// Where keys and tickets live.
pub(crate) struct State {
    pub(crate) key: KeyPair,
    pub(crate) store: TicketStore,
}

/// Opens the state of this host, making a key at first use.
///
/// # Errors
/// In words for the user.
pub(crate) fn open_state(chosen: Option<&Path>) -> Result<State, String> {
    let directory: PathBuf = match chosen {
        Some(directory) => directory.to_owned(),
        None => default_state_dir().map_err(|error| error.to_string())?,
    };
    let store = TicketStore::open(&directory).map_err(|error| error.to_string())?;
    let key = KeyPair::load_or_create(&directory.join("host.key")).map_err(|error| error.to_string())?;
    Ok(State { key, store })
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "tickets expire by the wall clock")]
pub(crate) fn now_unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// The addresses of this host that another one may reach, for a socket bound to `bound`. Loopback only if there is nothing
/// else, since it means another host to anybody else.
pub(crate) fn reachable_addresses(bound: SocketAddr) -> Vec<IpAddr> {
    if !bound.ip().is_unspecified() {
        return vec![bound.ip()];
    }
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let mut found: Vec<IpAddr> = interfaces
        .into_iter()
        .filter(|interface| interface.is_oper_up())
        .map(|interface| interface.ip())
        .filter(|ip| ip.is_ipv4() == bound.is_ipv4() && !ip.is_loopback() && !is_link_local(ip))
        .collect();
    found.sort();
    found.dedup();
    if found.is_empty() {
        found.push(if bound.is_ipv4() { IpAddr::from([127, 0, 0, 1]) } else { IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]) });
    }
    found
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}
