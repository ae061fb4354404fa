//! IP packets on a model link.

use netem::Packet;
use units::Rng;
use wire::ip;
use wire::tcp::Header;

/// The bytes of an IPv4 packet with a TCP segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IpPacket {
    pub(crate) bytes: Vec<u8>,
}

/// Mask of the ECN field of the IPv4 header.
const ECN: u8 = 0b11;

impl IpPacket {
    pub(crate) const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    pub(crate) fn header(&self) -> Header {
        let ip = ip::Packet::parse(&self.bytes).expect("a valid packet");
        Header::parse(ip.payload).expect("a valid segment").0
    }

    pub(crate) fn data_len(&self) -> usize {
        let ip = ip::Packet::parse(&self.bytes).expect("a valid packet");
        ip.payload.len() - Header::parse(ip.payload).expect("a valid segment").1
    }
}

impl Packet for IpPacket {
    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }

    fn corrupt(&mut self, rng: &mut Rng) {
        self.bytes.corrupt(rng);
    }

    fn mark_ce(&mut self) -> bool {
        if self.bytes[1] & ECN == 0 {
            return false;
        }
        self.bytes[1] |= ECN;
        self.bytes[10..12].fill(0);
        let sum = !wire::checksum::sum(&self.bytes[..20], 0);
        self.bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        true
    }
}
