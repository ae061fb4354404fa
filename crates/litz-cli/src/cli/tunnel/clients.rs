//! The clients that a server's file of settings lists: their keys, and what each may use.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use litz::identity::{AllowList, Fingerprint, PublicKey};
use serde::Deserialize;
use tunnel::Prefix;
use tunnel::host_address::refusal;
use tunnel::own_networks::ROUTE_BITS_MIN;
use units::Rate;

use super::addresses::InterfaceAddress;
use super::settings::client_rate;
use super::settings_file;
use super::texts::Texts;

/// The tables `[[client]]` of a file. Other keys are options of the command.
#[derive(Deserialize)]
struct Tables {
    #[serde(default)]
    client: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    key: toml::Spanned<String>,
    label: Option<String>,
    #[serde(default)]
    address: Texts,
    #[serde(default)]
    network: Texts,
    rate: Option<toml::Spanned<String>>,
}

/// A network behind a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Behind {
    pub(super) network: Prefix,
    /// The line of the file that names it.
    line: usize,
}

/// A client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Client {
    pub(super) key: Fingerprint,
    /// What the user calls it.
    pub(super) label: Option<String>,
    /// Its addresses in the tunnel, instead of any of the server's networks.
    pub(super) addresses: Vec<IpAddr>,
    /// Networks behind it.
    pub(super) networks: Vec<Behind>,
    /// The rate of each direction, instead of that for all clients.
    pub(super) rate: Option<Rate>,
}

/// The clients of a server.
#[derive(Debug)]
pub(super) struct Clients {
    file: Option<PathBuf>,
    /// The server's addresses in the tunnel.
    own: Vec<InterfaceAddress>,
    /// As they were read last without an error.
    read: Mutex<Vec<Client>>,
}

impl Clients {
    /// Those of this file, if there is one, of a server with these addresses.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn load(file: Option<&Path>, own: &[InterfaceAddress]) -> Result<Self, String> {
        let read = file.map(|file| load(file, own)).transpose()?.unwrap_or_default();
        Ok(Self { file: file.map(Path::to_owned), own: own.to_vec(), read: Mutex::new(read) })
    }

    /// Whether clients are listed: then others are refused.
    pub(super) fn are_listed(&self) -> bool {
        !self.lock().is_empty()
    }

    /// The addresses that are those of listed clients.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.lock().iter().flat_map(|client| client.addresses.clone()).collect()
    }

    /// The networks behind clients.
    pub(super) fn networks(&self) -> Vec<Behind> {
        self.lock().iter().flat_map(|client| client.networks.clone()).collect()
    }

    /// The message for an error of a network of the file.
    pub(super) fn error_of(&self, behind: &Behind, why: &str) -> String {
        let file = self.file.as_deref().unwrap_or(Path::new(""));
        settings_file::error_on_line(file, behind.line, why)
    }

    /// What the file says now of a client. A file with an error is as it was before.
    pub(super) fn find(&self, key: &PublicKey) -> Option<Client> {
        if let Some(Ok(read)) = self.file.as_deref().map(|file| load(file, &self.own)) {
            *self.lock() = read;
        }
        self.lock().iter().find(|client| client.key == key.fingerprint()).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Client>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clients in `text`, the content of the file at `path`, of a server with the addresses `own`.
///
/// # Errors
/// A message for the user, with the line.
pub(super) fn parse(path: &Path, text: &str, own: &[InterfaceAddress]) -> Result<Vec<Client>, String> {
    let tables: Tables = toml::from_str(text).map_err(|error| settings_file::syntax_error(path, text, &error))?;
    let mut clients: Vec<Client> = Vec::new();
    for table in tables.client {
        let client = client_of(path, text, &table, own)?;
        let others = || clients.iter();
        // A peer may send from all of its networks, so no part of one may be another's.
        let has_network =
            |other: &Client, behind: &Behind| other.networks.iter().any(|o| o.network.overlaps(&behind.network));
        let is_taken = others().any(|other| other.key == client.key)
            || others().any(|other| other.addresses.iter().any(|address| client.addresses.contains(address)))
            || others().any(|other| client.networks.iter().any(|behind| has_network(other, behind)));
        if is_taken {
            let why = "another client has this key, or an address of this one or of its networks";
            return Err(settings_file::error_at(path, text, table.key.span().start, why));
        }
        clients.push(client);
    }
    Ok(clients)
}

/// The client of a table.
fn client_of(path: &Path, text: &str, table: &Table, own: &[InterfaceAddress]) -> Result<Client, String> {
    // The server routes these networks, too. Those that cannot be read are refused below.
    let routed: Vec<Prefix> =
        table.network.as_slice().iter().filter_map(|value| value.get_ref().parse().ok()).collect();
    let address = |text: &str| {
        let address: IpAddr = text.parse().map_err(|_| "is no IP address".to_owned())?;
        if routed.iter().any(|network| network.contains(address)) {
            return Ok(address);
        }
        check_address(address, own).map(|()| address)
    };
    let network = |text: &str| {
        let network: Prefix = text.parse().map_err(|_| "is no network".to_owned())?;
        check_network(&network, own).map(|()| network)
    };
    let behind = |value: &toml::Spanned<String>| {
        let line = settings_file::line_at(text, value.span().start);
        read(path, text, value, network).map(|network| Behind { network, line })
    };
    Ok(Client {
        key: read(path, text, &table.key, fingerprint)?,
        label: table.label.clone(),
        addresses: table
            .address
            .as_slice()
            .iter()
            .map(|value| read(path, text, value, address))
            .collect::<Result<_, _>>()?,
        networks: table.network.as_slice().iter().map(behind).collect::<Result<_, _>>()?,
        rate: table.rate.as_ref().map(|value| read(path, text, value, rate_of)).transpose()?,
    })
}

/// Refuses an address that a client of this server cannot have, or that no route leads to.
fn check_address(address: IpAddr, own: &[InterfaceAddress]) -> Result<(), String> {
    if own.iter().any(|own| own.address == address) {
        return Err("is the server's own address".to_owned());
    }
    let Some(of) = own.iter().find(|own| own.network.contains(address)) else {
        let networks: Vec<String> = own.iter().map(|own| own.network.to_string()).collect();
        let networks = networks.join(" and ");
        return Err(format!("is outside the server's networks, {networks}, so that no route leads to it"));
    };
    refusal(address, &of.network).map_or(Ok(()), |why| Err(why.to_owned()))
}

/// Refuses a network that is too large, or has addresses of the server and of other clients: the client could send
/// from these.
fn check_network(network: &Prefix, own: &[InterfaceAddress]) -> Result<(), String> {
    if network.bits() < ROUTE_BITS_MIN {
        return Err(format!(
            "is a large part of the Internet, whose packets the server would send to this client: a network has at least \
             {ROUTE_BITS_MIN} bits"
        ));
    }
    match own.iter().find(|own| network.overlaps(&own.network)) {
        Some(own) => Err(format!(
            "has addresses of the server's network {} in it, which are of the server and of all clients: name smaller \
             networks, or give the server another --address",
            own.network
        )),
        None => Ok(()),
    }
}

fn read<T>(
    path: &Path,
    text: &str,
    value: &toml::Spanned<String>,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, String> {
    parse(value.get_ref())
        .map_err(|why| settings_file::error_at(path, text, value.span().start, &format!("{:?} {why}", value.get_ref())))
}

fn rate_of(text: &str) -> Result<Rate, String> {
    client_rate(text).map_err(|why| format!("is no rate for a client: {why}"))
}

fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    let key = text.parse::<PublicKey>().map(|key| key.fingerprint());
    key.or_else(|_| text.parse()).map_err(|_| "is no key, which `litz id` prints on the client".to_owned())
}

/// The keys of the clients in the file at `path`, as a list of allowed keys.
///
/// # Errors
/// A message for the user.
pub(super) fn allow_list(path: &Path, own: &[InterfaceAddress]) -> Result<AllowList, String> {
    Ok(AllowList::of(load(path, own)?.into_iter().map(|client| client.key)))
}

/// The clients in the file at `path`.
///
/// # Errors
/// A message for the user.
fn load(path: &Path, own: &[InterfaceAddress]) -> Result<Vec<Client>, String> {
    parse(path, &settings_file::read(path)?, own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32])
    }

    fn parsed(text: &str) -> Result<Vec<Client>, String> {
        let text = text.replace("KEY1", &key(1).to_string()).replace("KEY2", &key(2).fingerprint().to_string());
        let own = ["10.76.0.1/24", "fd76::1/64"].map(|text| text.parse().unwrap());
        parse(Path::new("tunnel.toml"), &text, &own)
    }

    #[test]
    fn clients_have_keys_addresses_networks_and_rates() {
        let clients = parsed(
            "tun = 'litz3'\n[[client]]\nkey = 'KEY1'\naddress = ['10.76.0.9', 'fd76::9']\nnetwork = ['192.168.9.0/24']\n\
             rate = '20Mb/s'\nlabel = 'laptop'\n[[client]]\nkey = 'KEY2'\n",
        )
        .unwrap();
        let first = Client {
            key: key(1).fingerprint(),
            label: Some("laptop".to_owned()),
            addresses: vec!["10.76.0.9".parse().unwrap(), "fd76::9".parse().unwrap()],
            networks: vec![Behind { network: "192.168.9.0/24".parse().unwrap(), line: 5 }],
            rate: Some(Rate::from_mbps(20)),
        };
        let one = parsed("[[client]]\nkey = 'KEY1'\naddress = '10.76.0.9'\nnetwork = '192.168.9.0/24'").unwrap();
        let network = |client: &Client| client.networks[0].network;
        assert_eq!((&one[0].addresses[..], network(&one[0])), (&first.addresses[..1], network(&first)));
        let second = Client { key: key(2).fingerprint(), label: None, addresses: vec![], networks: vec![], rate: None };
        assert_eq!(clients, [first, second]);
        assert_eq!(parsed("tun = 'litz3'"), Ok(vec![]));
    }

    #[test]
    fn a_client_may_have_an_address_of_a_network_behind_it() {
        let text = "[[client]]\nkey = 'KEY1'\naddress = ['10.9.8.5']\nnetwork = ['10.9.8.0/24']";
        let client = parsed(text).unwrap().remove(0);
        assert_eq!(client.addresses, ["10.9.8.5".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line, words) in [
            ("[[client]]\nkey = 'KEY1'\nadress = ['10.0.0.1']", 3, "adress"),
            ("[[client]]\nkey = 'ed25519:short'", 2, "is no key"),
            ("[[client]]\naddress = []", 1, "key"),
            ("\n[[client]]\nkey = 'KEY1'\naddress = [\n  '10.0.0.300',\n]", 5, "10.0.0.300"),
            ("[[client]]\nkey = 'KEY1'\nrate = '9'", 3, "\"9\" is no rate for a client: expected a rate such as"),
            ("[[client]]\nkey = 'KEY1'\nrate = '0'", 3, "not limited"),
            ("[[client]]\nkey = 'KEY1'\naddress = '10.0.0.300'", 3, "10.0.0.300"),
            ("[[client]]\nkey = 'KEY1'\naddress = 9", 3, "a text in quotes or a list"),
            ("[[client]]\nkey = 'KEY1'\nnetwork = ['10.0.0.0/33']", 3, "no network"),
            ("[[client]]\nkey = 'KEY1'\nnetwork = ['0.0.0.0/0']", 3, "at least 8 bits"),
            ("[[client]]\nkey = 'KEY1'\nnetwork = [\n'128.0.0.0/1']", 4, "at least 8 bits"),
            ("[[client]]\nkey = 'KEY1'\nnetwork = ['2000::/3']", 3, "at least 8 bits"),
            ("[[client]]\nkey = 'KEY1'\nnetwork = ['10.0.0.0/8']", 3, "addresses of the server's network 10.76.0.0/24"),
            ("[[client]]\nkey = 'KEY1'\nnetwork = ['10.76.0.128/25']", 3, "addresses of the server's network"),
            ("[[client]]\nkey = 'KEY1'\naddress = ['10.9.9.9']\nnetwork = ['10.9.8.0/24']", 3, "outside the server's"),
            ("[[client]]\nkey = 'KEY1'\naddress = ['10.76.0.1']", 3, "is the server's own address"),
            ("[[client]]\nkey = 'KEY1'\naddress = ['fd76::1']", 3, "is the server's own address"),
            ("[[client]]\nkey = 'KEY1'\naddress = ['10.9.9.9']", 3, "outside the server's networks, 10.76.0.0/24 and"),
            ("[[client]]\nkey = 'KEY1'\naddress = ['10.76.0.0']", 3, "is the address of the network"),
            ("[[client]]\nkey = 'KEY1'\naddress = ['10.76.0.255']", 3, "is the broadcast address"),
            ("[[client]]\nkey = 'KEY1'\n[[client]]\nkey = 'KEY1'", 4, "another client"),
            (
                "[[client]]\nkey = 'KEY1'\naddress = ['10.76.0.2']\n[[client]]\nkey = 'KEY2'\naddress = ['10.76.0.2']",
                5,
                "another client",
            ),
            (
                "[[client]]\nkey = 'KEY1'\nnetwork = '10.50.0.0/16'\n[[client]]\nkey = 'KEY2'\nnetwork = '10.50.1.0/24'",
                5,
                "an address of this one or of its networks",
            ),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.starts_with(&format!("tunnel.toml, line {line}: ")) && error.contains(words), "{error}");
        }
    }
}
