//! The sockets on which a command listens.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use litz::paths::listen::Place;
use litz::paths::{advice, listen};
use litz::{Interface, LiveSocket, ReplaceableSocket, UdpSocket};
use net::{DatagramSocket, OpenError};
use transfer::TicketAddress;

use crate::cli::connect::{small_buffers, socket};
use crate::cli::links::BoundSocket;
use crate::cli::listen_options::ListenOptions;
use crate::cli::transport_options::TransportOptions;
use crate::cli::warning::Warning;

/// The sockets and their addresses.
pub(crate) struct ListenSockets {
    pub(crate) port: u16,
    /// The addresses for the ticket.
    pub(crate) addresses: Vec<TicketAddress>,
    pub(crate) sockets: Vec<Box<dyn LiveSocket>>,
    /// The same, to be followed.
    pub(crate) bound: Vec<BoundSocket>,
    /// Settings of this host that the user may want to change.
    pub(crate) advice: Vec<String>,
}

/// Why a command cannot listen.
pub(crate) struct ListenError {
    /// For the user.
    pub(crate) message: String,
    /// Another program has the port.
    pub(crate) is_port_taken: bool,
}

impl From<String> for ListenError {
    fn from(message: String) -> Self {
        Self { message, is_port_taken: false }
    }
}

impl From<OpenError> for ListenError {
    fn from(error: OpenError) -> Self {
        Self { message: error.to_string(), is_port_taken: error.kind() == io::ErrorKind::AddrInUse }
    }
}

/// Opens the sockets that the options request: one for all addresses of a family for a wildcard,
/// one for a given address, and otherwise one for each address of this host.
///
/// # Errors
/// [`ListenError`], whose text is for the user.
pub(crate) fn listen(
    options: &ListenOptions,
    output: &TransportOptions,
    port: u16,
) -> Result<ListenSockets, ListenError> {
    let interfaces = net::interfaces().map_err(|error| format!("cannot list the network interfaces: {error}"))?;
    // A device that is named is listened on also if it is a tunnel's.
    let is_meant = |it: &&Interface| options.device.as_ref().is_none_or(|device| it.name == *device);
    let meant: Vec<Interface> = interfaces.iter().filter(is_meant).cloned().collect();
    let plan = |ip: Option<IpAddr>| listen::plan(if ip.is_some_and(is_one) { &interfaces } else { &meant }, ip);
    let mut places = match &options.listen[..] {
        [] => plan(None),
        named => named.iter().flat_map(|named| plan(named.ip)).collect(),
    };
    if let Some(device) = &options.device {
        if options.ip().is_some_and(is_one) {
            places.iter_mut().for_each(|place| place.device = Some(device.clone()));
        } else {
            places.retain(|place| place.device.as_ref() == Some(device));
        }
        if places.is_empty() {
            let why = "it has no address, is down, or is not a network device";
            return Err(format!("cannot listen on {device}: {why}").into());
        }
    }
    let unserved: Vec<IpAddr> = options.advertised(port).filter(|ip| is_unserved(*ip, &interfaces, &places)).collect();
    if options.listen.iter().all(|listen| listen.ip.is_none()) {
        // An address that no card has (of loopback, or in another subnet) gets a socket, too, for its packets
        // may arrive over any card.
        for mut place in unserved.iter().flat_map(|ip| listen::plan(&interfaces, Some(*ip))) {
            place.device = options.device.clone().or(place.device);
            places.push(place);
        }
    } else if !options.ip().is_some_and(|ip| ip.is_unspecified()) {
        for ip in unserved {
            let note = format!("not listening on {ip}, which --advertise puts into the ticket: add --listen {ip}");
            Warning::NotListening.print(output.json, output.quiet, &note);
        }
    }
    if let Some(wildcard) = options.ip().filter(|ip| ip.is_unspecified()) {
        let bind = SocketAddr::new(wildcard, port);
        let asked = socket(bind, options.device.as_deref());
        let opened = UdpSocket::open(&asked)?;
        let buffers = small_buffers(&opened, &asked);
        let port = opened.local_addr().map_err(|error| error.to_string())?.port();
        let addresses = places.iter().map(|place| TicketAddress::Socket(SocketAddr::new(place.address.ip, port)));
        let (addresses, sockets) = (addresses.collect(), vec![Box::new(opened) as Box<dyn LiveSocket>]);
        warn_of_buffers(output, buffers);
        return Ok(ListenSockets { port, addresses, sockets, bound: Vec::new(), advice: Vec::new() });
    }
    let listening = listen::open(&places, port)?;
    for (place, why) in &listening.skipped {
        let note = format!("not listening on {}: {why}", place.address.ip);
        Warning::NotListening.print(output.json, output.quiet, &note);
    }
    let used = listening.sockets.iter().filter_map(|(place, _)| Some((place.device.as_deref()?, place.address.ip)));
    let advice = advice::advise_here(&interfaces, &used.collect::<Vec<_>>());
    let asked = socket(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), None);
    warn_of_buffers(output, listening.sockets.iter().find_map(|(_, socket)| small_buffers(socket, &asked)));
    let (port, addresses) = (listening.port, listening.addresses().into_iter().map(TicketAddress::Socket).collect());
    let (mut sockets, mut bound) = (Vec::<Box<dyn LiveSocket>>::new(), Vec::new());
    for (place, opened) in listening.sockets {
        let (live, switch) = ReplaceableSocket::new(opened);
        let options = socket(place.address.with_port(port), place.device.as_deref());
        bound.push(BoundSocket::new(sockets.len(), options, switch));
        sockets.push(Box::new(live));
    }
    Ok(ListenSockets { port, addresses, sockets, bound, advice })
}

/// Whether this host has the address, and none of the places is there.
fn is_unserved(ip: IpAddr, interfaces: &[Interface], places: &[Place]) -> bool {
    let is_ours = interfaces.iter().flat_map(|interface| &interface.addresses).any(|address| address.ip == ip);
    is_ours && !places.iter().any(|place| place.address.ip == ip)
}

/// Whether it is one address, and not all of its family.
const fn is_one(ip: IpAddr) -> bool {
    !ip.is_unspecified()
}

fn warn_of_buffers(output: &TransportOptions, advice: Option<String>) {
    if let Some(advice) = advice {
        Warning::SmallBuffers.print(output.json, output.quiet, &advice);
    }
}
