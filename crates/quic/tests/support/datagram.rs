//! A datagram with its ECN codepoint.

use std::ops::Deref;

use netem::Packet;
use units::{Ecn, Rng};

/// A datagram on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    pub bytes: Vec<u8>,
    pub ecn: Option<Ecn>,
}

impl From<Vec<u8>> for Datagram {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, ecn: None }
    }
}

impl Deref for Datagram {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Packet for Datagram {
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
        self.ecn = self.ecn.map(|_| Ecn::Ce);
        self.ecn.is_some()
    }

    fn is_scalable(&self) -> bool {
        self.ecn == Some(Ecn::Ect1)
    }
}
