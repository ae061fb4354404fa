//! The addresses that clients have by their keys, across runs of the server.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;

use litz::identity::PublicKey;
use tunnel::host_address::refusal;

use super::addresses::InterfaceAddress;

/// Keys that are remembered, at most. The one that was here least recently is forgotten for another.
const PLACES_MAX: usize = 65_536;

/// The longest file of the pool.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Assigns addresses to clients by their keys.
#[derive(Debug)]
pub(super) struct Pool {
    server: Vec<InterfaceAddress>,
    /// Addresses that belong to certain clients.
    reserved: Vec<IpAddr>,
    /// The place of each key, the one that came last at the end.
    places: Vec<(PublicKey, u64)>,
    /// Where the places are written.
    file: Option<PathBuf>,
    write_error: Option<String>,
}

impl Pool {
    /// The other addresses of the networks of these addresses, which are the server's.
    pub(super) const fn new(server: Vec<InterfaceAddress>) -> Self {
        Self { server, reserved: Vec::new(), places: Vec::new(), file: None, write_error: None }
    }

    /// The same, with the places in `file`, and written there.
    ///
    /// # Errors
    /// A message for the user: the file cannot be read, or has something else in it.
    pub(super) fn open(server: Vec<InterfaceAddress>, file: PathBuf) -> Result<Self, String> {
        let shown = file.display();
        let text = match fs::metadata(&file) {
            Ok(metadata) if metadata.len() > FILE_BYTES_MAX => Err(io::Error::other("it is too long")),
            Ok(_) => fs::read_to_string(&file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        };
        let text = text.map_err(|error| format!("cannot read {shown}: {error}"))?;
        let parse = |line: &str| {
            let (place, key) = line.split_once(' ')?;
            Some((key.parse().ok()?, place.parse().ok()?))
        };
        let places = text.lines().enumerate().map(|(index, line)| {
            parse(line).ok_or_else(|| format!("{shown}, line {}: no place and key; remove the line", index + 1))
        });
        let places = places.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { places, file: Some(file), ..Self::new(server) })
    }

    /// These addresses are assigned to no client from the pool.
    pub(super) fn reserve(&mut self, addresses: Vec<IpAddr>) {
        self.reserved = addresses;
    }

    /// The addresses of a client, one of each network; none if all that one of the networks has are used
    /// now. The addresses of a client that is not here go to another one only if none are left, those of
    /// the client first that came least recently.
    pub(super) fn assign(&mut self, key: PublicKey, is_used: impl Fn(IpAddr) -> bool) -> Option<Vec<(IpAddr, u8)>> {
        let own = self.places.iter().position(|(other, _)| *other == key).map(|at| self.places.remove(at).1);
        let place = own.filter(|place| self.at(*place).is_some()).or_else(|| self.free()).or_else(|| {
            let is_here =
                |place: u64| self.at(place).is_none_or(|own| own.iter().any(|(address, _)| is_used(*address)));
            let oldest = self.places.iter().position(|(_, place)| !is_here(*place))?;
            Some(self.places.remove(oldest).1)
        });
        let place = place?;
        if self.places.len() >= PLACES_MAX {
            self.places.remove(0);
        }
        self.places.push((key, place));
        self.write_error = self.write().err();
        self.at(place)
    }

    /// Why the file could not be written when addresses were last assigned.
    pub(super) fn write_error(&self) -> Option<&str> {
        self.write_error.as_deref()
    }

    /// Whether any place has an address for a client in each network.
    pub(super) fn has_places(&self) -> bool {
        Self::new(self.server.clone()).free().is_some()
    }

    /// A place that no client has.
    fn free(&self) -> Option<u64> {
        let mut taken: Vec<u64> = self.places.iter().map(|(_, place)| *place).collect();
        taken.sort_unstable();
        let mut place = 0;
        loop {
            let mut addresses = self.server.iter().map(|server| server.network.nth(place));
            if addresses.any(|address| address.is_none()) {
                return None;
            }
            if taken.binary_search(&place).is_err() && self.at(place).is_some() {
                return Some(place);
            }
            place += 1;
        }
    }

    /// The addresses of a place, unless one of them is the server's, reserved, or none of a host.
    fn at(&self, place: u64) -> Option<Vec<(IpAddr, u8)>> {
        let of = |server: &InterfaceAddress| {
            let address = server.network.nth(place)?;
            let is_others = address == server.address || self.reserved.contains(&address);
            let is_free = !is_others && refusal(address, &server.network).is_none();
            is_free.then_some((address, server.network.bits()))
        };
        self.server.iter().map(of).collect()
    }

    /// Replaces the file, so that it is whole in any case.
    fn write(&self) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let text: String = self.places.iter().map(|(key, place)| format!("{place} {key}\n")).collect();
        let new = file.with_extension("new");
        let write = || {
            let mut out = fs::File::create(&new)?;
            out.write_all(text.as_bytes())?;
            out.sync_all()?;
            fs::rename(&new, file)
        };
        write().map_err(|error: io::Error| format!("cannot write {}: {error}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32])
    }

    /// The IPv4 address that a client gets, while those of `here` are connected.
    fn assigned(pool: &mut Pool, number: u8, here: &[&str]) -> Option<String> {
        let is_used = |address: IpAddr| here.iter().any(|used| used.parse() == Ok(address));
        let addresses = pool.assign(key(number), is_used);
        assert_eq!(pool.write_error(), None);
        addresses.map(|addresses| addresses[0].0.to_string())
    }

    fn small() -> Vec<InterfaceAddress> {
        vec!["10.76.0.1/29".parse().unwrap(), "fd76::1/64".parse().unwrap()]
    }

    #[test]
    fn each_key_gets_its_own_addresses_and_keeps_them() {
        let mut pool = Pool::new(small());
        let first = pool.assign(key(1), |_| true).unwrap();
        assert_eq!(first, [("10.76.0.2".parse().unwrap(), 29), ("fd76::2".parse().unwrap(), 64)]);
        assert_eq!(assigned(&mut pool, 2, &[]).unwrap(), "10.76.0.3");
        assert_eq!(pool.assign(key(1), |_| true).unwrap(), first);
        // 10.76.0.2 to 10.76.0.6: .0 names the network, .7 is the broadcast address.
        let more: Vec<_> = (3..=5).map(|number| assigned(&mut pool, number, &[]).unwrap()).collect();
        assert_eq!(more, ["10.76.0.4", "10.76.0.5", "10.76.0.6"]);
        assert_eq!(pool.assign(key(6), |_| true), None);
        assert_eq!(assigned(&mut pool, 5, &[]).unwrap(), "10.76.0.6");
    }

    #[test]
    fn the_servers_address_may_be_any() {
        let mut pool = Pool::new(vec!["10.76.0.2/24".parse().unwrap()]);
        let assigned: Vec<_> = (1..=2).map(|number| assigned(&mut pool, number, &[]).unwrap()).collect();
        assert_eq!(assigned, ["10.76.0.1", "10.76.0.3"]);
    }

    #[test]
    fn a_network_of_two_addresses_has_one_for_a_client() {
        for (server, expected) in [
            ("10.76.0.2/31", "10.76.0.3/31"),
            ("10.76.0.3/31", "10.76.0.2/31"),
            ("fd76::/127", "fd76::1/127"),
            ("fd76::1/127", "fd76::/127"),
        ] {
            let mut pool = Pool::new(vec![server.parse().unwrap()]);
            let (address, bits) = pool.assign(key(1), |_| true).unwrap()[0];
            assert_eq!(format!("{address}/{bits}"), expected);
            assert_eq!(pool.assign(key(2), |_| true), None, "{server}");
        }
        // A client has the same place in both networks, and the first one of a larger network is no host's.
        let both = |own: [&str; 2]| {
            let mut pool = Pool::new(own.map(|own| own.parse().unwrap()).to_vec());
            pool.assign(key(1), |_| true).map(|addresses| addresses[0].0.to_string())
        };
        assert_eq!(both(["10.76.0.2/31", "fd76::9/64"]).as_deref(), Some("10.76.0.3"));
        assert_eq!(both(["10.76.0.3/31", "fd76::9/64"]), None);
        assert!(!Pool::new(vec!["10.76.0.2/31".parse().unwrap(), "fd76::1/64".parse().unwrap()]).has_places());
    }

    #[test]
    fn if_none_are_left_the_client_that_was_here_least_recently_loses_its_addresses() {
        let mut pool = Pool::new(small());
        (1..=5).for_each(|number| drop(assigned(&mut pool, number, &[])));
        assert_eq!(assigned(&mut pool, 1, &[]).unwrap(), "10.76.0.2", "it came again");
        // Of 2, 3, 4, 5 and 1, the second is here.
        assert_eq!(assigned(&mut pool, 6, &["10.76.0.3"]).unwrap(), "10.76.0.4");
        assert_eq!(assigned(&mut pool, 3, &["10.76.0.3"]).unwrap(), "10.76.0.5", "the third gets another");
    }

    #[test]
    fn places_are_those_of_the_last_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("places");
        let mut pool = Pool::open(small(), file.clone()).unwrap();
        (1..=3).for_each(|number| drop(assigned(&mut pool, number, &[])));
        let mut again = Pool::open(small(), file.clone()).unwrap();
        assert_eq!(assigned(&mut again, 3, &[]).unwrap(), "10.76.0.4");
        assert_eq!(assigned(&mut again, 4, &[]).unwrap(), "10.76.0.5");
        // Other networks have other addresses, at the same places.
        let mut other = Pool::open(vec!["10.77.0.1/24".parse().unwrap()], file.clone()).unwrap();
        assert_eq!(assigned(&mut other, 1, &[]).unwrap(), "10.77.0.2");
        // An address that is reserved since is not kept.
        let mut reserving = Pool::open(small(), file.clone()).unwrap();
        reserving.reserve(vec!["10.76.0.2".parse().unwrap()]);
        assert_eq!(assigned(&mut reserving, 1, &[]).unwrap(), "10.76.0.6");
        std::fs::write(&file, "1 nonsense\n").unwrap();
        assert!(Pool::open(small(), file).unwrap_err().contains("line 1"));
    }
}
