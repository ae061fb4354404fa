//! An IP packet on an emulated link.

use net::tun::TunPacket;
use netem::Packet;
use units::Rng;

/// A packet of a TUN device. Its length is that of the IP packet.
#[derive(Clone, Debug)]
pub(super) struct IpPacket(pub(super) TunPacket);

impl Packet for IpPacket {
    fn len_bytes(&self) -> usize {
        self.0.ip().len()
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }

    /// Flips one bit at any position. The checksum is completed first, so the receiver detects the
    /// corruption.
    fn corrupt(&mut self, rng: &mut Rng) {
        self.0.finish_checksum();
        let bits = self.0.ip().len() as u64 * 8;
        if bits > 0 {
            let bit = rng.below(bits);
            self.0.ip_mut()[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }

    fn mark_ce(&mut self) -> bool {
        self.0.mark_ce()
    }

    fn is_scalable(&self) -> bool {
        self.0.is_ect1()
    }
}
