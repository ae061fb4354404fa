//! Encoding of messages.

use std::net::Ipv6Addr;

use super::prefix::Prefix;
use super::{Message, RouterAdvertisement, UNIT, option, ty};
use crate::ethernet::MacAddress;

impl Message {
    /// Returns the type of the ICMPv6 message.
    pub(crate) const fn ty(&self) -> u8 {
        match self {
            Self::RouterSolicitation { .. } => ty::ROUTER_SOLICITATION,
            Self::RouterAdvertisement(_) => ty::ROUTER_ADVERTISEMENT,
            Self::NeighborSolicitation { .. } => ty::NEIGHBOR_SOLICITATION,
            Self::NeighborAdvertisement { .. } => ty::NEIGHBOR_ADVERTISEMENT,
        }
    }

    /// Returns the length of the bytes after the checksum.
    pub(crate) const fn body_len(&self) -> usize {
        const fn link(address: Option<MacAddress>) -> usize {
            if address.is_some() { UNIT } else { 0 }
        }
        match self {
            Self::RouterSolicitation { source_link } => 4 + link(*source_link),
            Self::RouterAdvertisement(router) => {
                let mtu = if router.mtu.is_some() { UNIT } else { 0 };
                12 + link(router.source_link) + mtu + router.prefixes.len() * 4 * UNIT
            }
            Self::NeighborSolicitation { source_link: link_layer, .. }
            | Self::NeighborAdvertisement { target_link: link_layer, .. } => 20 + link(*link_layer),
        }
    }

    /// Appends the bytes after the checksum.
    pub(crate) fn emit_body(&self, out: &mut Vec<u8>) {
        match *self {
            Self::RouterSolicitation { source_link } => {
                out.extend_from_slice(&[0; 4]);
                emit_link(option::SOURCE_LINK_LAYER, source_link, out);
            }
            Self::RouterAdvertisement(ref router) => emit_router(router, out),
            Self::NeighborSolicitation { target, source_link } => {
                emit_neighbor(0, target, out);
                emit_link(option::SOURCE_LINK_LAYER, source_link, out);
            }
            Self::NeighborAdvertisement { target, is_router, is_solicited, is_override, target_link } => {
                let flags = u8::from(is_router) << 7 | u8::from(is_solicited) << 6 | u8::from(is_override) << 5;
                emit_neighbor(flags, target, out);
                emit_link(option::TARGET_LINK_LAYER, target_link, out);
            }
        }
    }
}

/// Appends a router advertisement (RFC 4861, section 4.2).
fn emit_router(router: &RouterAdvertisement, out: &mut Vec<u8>) {
    let flags = u8::from(router.is_managed) << 7 | u8::from(router.has_other_configuration) << 6;
    out.extend_from_slice(&[router.hop_limit, flags]);
    out.extend_from_slice(&router.router_lifetime_s.to_be_bytes());
    out.extend_from_slice(&router.reachable_time_ms.to_be_bytes());
    out.extend_from_slice(&router.retransmit_timer_ms.to_be_bytes());
    emit_link(option::SOURCE_LINK_LAYER, router.source_link, out);
    if let Some(mtu) = router.mtu {
        out.extend_from_slice(&[option::MTU, 1, 0, 0]);
        out.extend_from_slice(&mtu.to_be_bytes());
    }
    for prefix in router.prefixes.iter() {
        emit_prefix(&prefix, out);
    }
}

/// Appends a neighbor solicitation or advertisement (RFC 4861, sections 4.3 and 4.4).
fn emit_neighbor(flags: u8, target: Ipv6Addr, out: &mut Vec<u8>) {
    out.extend_from_slice(&[flags, 0, 0, 0]);
    out.extend_from_slice(&target.octets());
}

/// Appends a link-layer address option (RFC 4861, section 4.6.1).
fn emit_link(ty: u8, address: Option<MacAddress>, out: &mut Vec<u8>) {
    if let Some(address) = address {
        out.extend_from_slice(&[ty, 1]);
        out.extend_from_slice(&address.0);
    }
}

/// Appends a prefix option (RFC 4861, section 4.6.2).
fn emit_prefix(prefix: &Prefix, out: &mut Vec<u8>) {
    let flags = u8::from(prefix.is_on_link) << 7 | u8::from(prefix.is_autonomous) << 6;
    out.extend_from_slice(&[option::PREFIX, 4, prefix.len, flags]);
    out.extend_from_slice(&prefix.valid_s.to_be_bytes());
    out.extend_from_slice(&prefix.preferred_s.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&prefix.address.octets());
}
