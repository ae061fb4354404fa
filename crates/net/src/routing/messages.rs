//! Conversion of settings to messages of rtnetlink(7), and back.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage, RulePortRange, RuleUidRange};
use netlink_packet_route::{AddressFamily, IpProtocol, RouteNetlinkMessage};
use nix::net::if_::if_nametoindex;
use rustix::io::Errno;

use super::requests::{ask, dump};
use super::{Family, Network, Observed, PROTOCOL, Packets, Route, Rule, Setting, TABLE_MAIN, Target};

/// The largest metric; a route with a lower metric takes precedence.
const METRIC_LAST: u32 = u32::MAX;

/// Value that means no prefix suppression in a rule (FRA_SUPPRESS_PREFIXLEN of linux/fib_rules.h).
const SUPPRESSES_NONE: u32 = u32::MAX;

/// Names of devices by index.
type Names = BTreeMap<u32, String>;

pub(super) fn set(setting: &Setting) -> io::Result<()> {
    match setting {
        Setting::Link { device, mtu } => {
            let mut message = LinkMessage::default();
            message.header.index = index_of(device)?;
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
            message.attributes.push(LinkAttribute::Mtu((*mtu).into()));
            ask(RouteNetlinkMessage::SetLink(message), 0)
        }
        Setting::Address { device, address, bits } => {
            let mut message = AddressMessage::default();
            message.header.family = family_of(*address);
            message.header.prefix_len = *bits;
            message.header.index = index_of(device)?;
            message.attributes = vec![AddressAttribute::Local(*address), AddressAttribute::Address(*address)];
            ask(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
        }
        Setting::Route(route) => {
            let replaces = if route.table == TABLE_MAIN { NLM_F_EXCL } else { NLM_F_REPLACE };
            ask(RouteNetlinkMessage::NewRoute(route_message(route)?), NLM_F_CREATE | replaces)
        }
        Setting::Rule(rule) => ask(RouteNetlinkMessage::NewRule(rule_message(rule)), NLM_F_CREATE | NLM_F_EXCL),
    }
}

pub(super) fn remove(setting: &Setting) -> io::Result<()> {
    let removed = match setting {
        Setting::Link { .. } | Setting::Address { .. } => return Ok(()),
        Setting::Route(route) => route_message(route).and_then(|mut message| {
            // A scope of `NoWhere` matches any scope.
            message.header.scope = RouteScope::NoWhere;
            ask(RouteNetlinkMessage::DelRoute(message), 0)
        }),
        Setting::Rule(rule) => ask(RouteNetlinkMessage::DelRule(rule_message(rule)), 0),
    };
    match removed {
        Err(error) if is_absence(&error) => Ok(()),
        removed => removed,
    }
}

/// Returns whether a rule or a route could not be removed because it, its device or its version of
/// IP does not exist.
fn is_absence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || matches!(
            Errno::from_io_error(error),
            Some(Errno::NOENT | Errno::SRCH | Errno::NODEV | Errno::AFNOSUPPORT | Errno::OPNOTSUPP)
        )
}

pub(super) fn read(table: u32) -> io::Result<Observed> {
    let mut observed = Observed::default();
    let mut names = Names::new();
    for message in dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()))? {
        let RouteNetlinkMessage::NewLink(link) = message else { continue };
        let attributes = || link.attributes.iter();
        let Some(name) =
            attributes().find_map(|of| if let LinkAttribute::IfName(name) = of { Some(name) } else { None })
        else {
            continue;
        };
        let mtu = attributes().find_map(|of| if let LinkAttribute::Mtu(mtu) = of { Some(*mtu) } else { None });
        names.insert(link.header.index, name.clone());
        observed.devices.insert(name.clone());
        if let (true, Some(Ok(mtu))) = (link.header.flags.contains(LinkFlags::Up), mtu.map(u16::try_from)) {
            observed.settings.insert(Setting::Link { device: name.clone(), mtu });
        }
    }
    for message in dump(&RouteNetlinkMessage::GetAddress(AddressMessage::default()))? {
        let RouteNetlinkMessage::NewAddress(message) = message else { continue };
        observed.settings.extend(address_setting(&message, &names));
    }
    // The kernel answers a request for a version of IP that it lacks with nothing, or with the
    // versions that it has.
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        for message in dump(&RouteNetlinkMessage::GetRoute(request))? {
            let RouteNetlinkMessage::NewRoute(message) = message else { continue };
            observed.add_route(&message, table, &names);
        }
        let mut request = RuleMessage::default();
        request.header.family = family;
        match dump(&RouteNetlinkMessage::GetRule(request)) {
            Ok(rules) => {
                for message in rules {
                    let RouteNetlinkMessage::NewRule(message) = message else { continue };
                    observed.settings.extend(rule_setting(&message).map(Setting::Rule));
                }
            }
            // The kernel lacks IPv6, or rules.
            Err(error) if is_absence(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(observed)
}

impl Observed {
    fn add_route(&mut self, message: &RouteMessage, own_table: u32, names: &Names) {
        let RouteMessage { header, attributes, .. } = message;
        let in_header = u32::from(header.table);
        let table =
            attributes.iter().find_map(|of| if let RouteAttribute::Table(table) = of { Some(*table) } else { None });
        let table = table.unwrap_or(in_header);
        if ![TABLE_MAIN, own_table].contains(&table) {
            return;
        }
        let network = attributes.iter().find_map(|of| match of {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(IpAddr::from(*address)),
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(IpAddr::from(*address)),
            _ => None,
        });
        let any = match header.address_family {
            AddressFamily::Inet => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            AddressFamily::Inet6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
            _ => return,
        };
        let (network, bits) = (network.unwrap_or(any), header.destination_prefix_length);
        let devices = devices_of(attributes, names);
        let is_unicast = header.kind == RouteType::Unicast;
        if header.protocol == RouteProtocol::from(PROTOCOL) {
            let target = match (header.kind, devices.first()) {
                (RouteType::Unreachable, _) => Some(Target::Unreachable),
                (RouteType::Unicast, Some(device)) => Some(Target::Device((*device).clone())),
                _ => None,
            };
            self.settings.extend(target.map(|target| Setting::Route(Route { table, network, bits, target })));
        }
        if table == TABLE_MAIN && is_unicast && bits > 0 {
            let network = |device: &&String| Network { device: (*device).clone(), address: network, bits };
            self.networks.extend(devices.iter().map(network));
        }
    }
}

fn devices_of<'a>(attributes: &[RouteAttribute], names: &'a Names) -> Vec<&'a String> {
    let mut devices = Vec::new();
    for attribute in attributes {
        match attribute {
            RouteAttribute::Oif(index) => devices.extend(names.get(index)),
            RouteAttribute::MultiPath(hops) => {
                devices.extend(hops.iter().filter_map(|hop| names.get(&hop.interface_index)))
            }
            _ => {}
        }
    }
    devices
}

fn address_setting(message: &AddressMessage, names: &Names) -> Option<Setting> {
    let local =
        message.attributes.iter().find_map(|of| if let AddressAttribute::Local(ip) = of { Some(*ip) } else { None });
    let other =
        message.attributes.iter().find_map(|of| if let AddressAttribute::Address(ip) = of { Some(*ip) } else { None });
    let device = names.get(&message.header.index)?.clone();
    Some(Setting::Address { device, address: local.or(other)?, bits: message.header.prefix_len })
}

fn route_message(route: &Route) -> io::Result<RouteMessage> {
    let mut message = RouteMessage::default();
    message.header.address_family = family_of(route.network);
    message.header.destination_prefix_length = route.bits;
    message.header.table = u8::try_from(route.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    message.header.protocol = RouteProtocol::from(PROTOCOL);
    message.attributes.push(RouteAttribute::Table(route.table));
    if route.bits > 0 {
        message.attributes.push(RouteAttribute::Destination(RouteAddress::from(route.network)));
    }
    match &route.target {
        Target::Device(device) => {
            message.header.kind = RouteType::Unicast;
            message.header.scope = if route.network.is_ipv4() { RouteScope::Link } else { RouteScope::Universe };
            message.attributes.push(RouteAttribute::Oif(index_of(device)?));
        }
        Target::Unreachable => {
            message.header.kind = RouteType::Unreachable;
            message.attributes.push(RouteAttribute::Priority(METRIC_LAST));
        }
    }
    Ok(message)
}

fn rule_message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = match rule.family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    };
    message.header.action = if rule.table.is_some() { RuleAction::ToTable } else { RuleAction::Unreachable };
    let attributes = &mut message.attributes;
    attributes.push(RuleAttribute::Priority(rule.priority));
    attributes.push(RuleAttribute::Protocol(RouteProtocol::from(PROTOCOL)));
    attributes.extend(rule.table.map(RuleAttribute::Table));
    match rule.packets {
        Packets::NotByDefaultRoute => attributes.push(RuleAttribute::SuppressPrefixLen(0)),
        Packets::WithoutMark(mark) => {
            message.header.flags = RuleFlags::Invert;
            attributes.push(RuleAttribute::FwMark(mark));
        }
        Packets::OfRootTo { address, port } => {
            message.header.dst_len = 32;
            attributes.push(RuleAttribute::Destination(address.into()));
            attributes.push(RuleAttribute::IpProtocol(IpProtocol::Udp));
            attributes.push(RuleAttribute::DestinationPortRange(RulePortRange { start: port, end: port }));
            attributes.push(RuleAttribute::UidRange(RuleUidRange { start: 0, end: 0 }));
        }
    }
    message
}

/// Returns the rule of a message, if [`rule_message`] could have produced it.
fn rule_setting(message: &RuleMessage) -> Option<Rule> {
    let family = match message.header.family {
        AddressFamily::Inet => Family::V4,
        AddressFamily::Inet6 => Family::V6,
        _ => return None,
    };
    let (mut priority, mut table, mut mark, mut suppresses, mut to, mut port) = (0, None, None, None, None, None);
    let mut is_ours = false;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(number) => priority = *number,
            RuleAttribute::Table(number) => table = Some(*number),
            RuleAttribute::FwMark(number) => mark = Some(*number),
            RuleAttribute::SuppressPrefixLen(SUPPRESSES_NONE) => {}
            RuleAttribute::SuppressPrefixLen(bits) => suppresses = Some(*bits),
            RuleAttribute::Destination(IpAddr::V4(address)) => to = Some(*address),
            RuleAttribute::DestinationPortRange(range) => port = Some(range.start),
            RuleAttribute::Protocol(protocol) => is_ours = *protocol == RouteProtocol::from(PROTOCOL),
            RuleAttribute::Iifname(_) | RuleAttribute::Oifname(_) | RuleAttribute::Source(_) => return None,
            _ => {}
        }
    }
    let inverts = message.header.flags.contains(RuleFlags::Invert);
    let packets = match (suppresses, mark, to.zip(port)) {
        (Some(0), None, None) if !inverts => Packets::NotByDefaultRoute,
        (None, Some(mark), None) if inverts => Packets::WithoutMark(mark),
        (None, None, Some((address, port))) if !inverts => Packets::OfRootTo { address, port },
        _ => return None,
    };
    let table = match message.header.action {
        RuleAction::ToTable => Some(table?),
        RuleAction::Unreachable => None,
        _ => return None,
    };
    is_ours.then_some(Rule { family, priority, packets, table })
}

const fn family_of(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn index_of(device: &str) -> io::Result<u32> {
    if_nametoindex(device).map_err(|errno| io::Error::from_raw_os_error(errno as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_as_it_was_set() {
        let rules = [
            (Packets::NotByDefaultRoute, Some(TABLE_MAIN)),
            (Packets::WithoutMark(0x6c69_747a), Some(0x6c69_747a)),
            (Packets::WithoutMark(0x6c69_747a), None),
            (Packets::OfRootTo { address: Ipv4Addr::new(192, 0, 2, 1), port: 4433 }, Some(TABLE_MAIN)),
        ];
        for (priority, (packets, table)) in (32_099..).zip(rules) {
            for family in [Family::V4, Family::V6] {
                let rule = Rule { family, priority, packets: packets.clone(), table };
                let mut message = rule_message(&rule);
                assert_eq!(rule_setting(&message), Some(rule.clone()));
                // The kernel includes these attributes in each rule.
                message.attributes.push(RuleAttribute::FwMask(u32::MAX));
                assert_eq!(rule_setting(&message), Some(rule));
                // These are rules of other programs.
                message.attributes.push(RuleAttribute::Iifname("eth0".to_owned()));
                assert_eq!(rule_setting(&message), None);
                message.attributes.pop();
                message.attributes.push(RuleAttribute::Protocol(RouteProtocol::Static));
                assert_eq!(rule_setting(&message), None);
            }
        }
    }

    #[test]
    fn a_route_is_read_as_it_was_set() {
        let names = Names::from([(1, "lo".to_owned())]);
        for network in ["10.0.0.0", "0.0.0.0", "::", "fd00::"] {
            let network: IpAddr = network.parse().expect("an address");
            for (table, target) in [(77_777, Target::Device("lo".to_owned())), (TABLE_MAIN, Target::Unreachable)] {
                let bits = if network.is_unspecified() { 0 } else { 8 };
                let route = Route { table, network, bits, target };
                let message = route_message(&route).expect("there is a loopback device");
                let mut observed = Observed::default();
                observed.add_route(&message, 77_777, &names);
                assert_eq!(observed.settings.into_iter().collect::<Vec<_>>(), [Setting::Route(route)]);
                let mut other = Observed::default();
                other.add_route(&message, 1, &names);
                assert_eq!(other.settings.is_empty(), table == 77_777);
            }
        }
    }

    #[test]
    fn this_host_has_a_loopback_device() {
        let observed = Observed::read(77_777).expect("netlink can be read by all");
        assert!(observed.devices.contains("lo"), "{observed:?}");
    }
}
