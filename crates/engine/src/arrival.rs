//! What a batch that has arrived tells without keys: where it came from, and which of its datagrams belong together.

use net::RecvMeta;
use quic::{Addresses, LOCAL_ID_LEN};

/// A connection ID of ours, as it stands in a short header.
pub(crate) type LocalId = [u8; LOCAL_ID_LEN];

/// Where a batch has come from, and to.
pub(crate) fn arrived_at(port: usize, meta: &RecvMeta) -> Addresses {
    let socket = u16::try_from(port).expect("an engine has few sockets");
    Addresses { remote: meta.source, local_ip: meta.destination_ip, socket }
}

/// How many bytes from the front of `data` have the connection ID of the first datagram.
pub(crate) fn run_of_id(data: &[u8], stride: usize) -> usize {
    let first = &data[..stride.min(data.len())];
    let rest = data[first.len()..].chunks(stride);
    first.len() + rest.take_while(|datagram| same_short_header(first, datagram)).map(<[u8]>::len).sum::<usize>()
}

/// Whether `datagram` may be handed over with `first`, the first of its batch; `is_ours` says whether it is of the same connection.
/// Short headers to different connection IDs may be of different paths, which are opened apart.
pub(crate) fn belongs_with(first: &[u8], datagram: &[u8], is_ours: impl FnOnce() -> bool) -> bool {
    same_short_header(first, datagram) || ((has_long_header(first) || has_long_header(datagram)) && is_ours())
}

/// The connection ID of a datagram with a short header.
pub(crate) fn local_id(datagram: &[u8]) -> Option<LocalId> {
    let (_, rest) = datagram.split_first().filter(|_| !has_long_header(datagram))?;
    rest.first_chunk().copied()
}

fn has_long_header(datagram: &[u8]) -> bool {
    const LONG: u8 = 0x80;
    datagram.first().is_some_and(|first| first & LONG != 0)
}

/// Whether both have short headers with the same connection ID: their other bits may differ.
fn same_short_header(first: &[u8], datagram: &[u8]) -> bool {
    local_id(first).is_some_and(|id| local_id(datagram) == Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_one_connection_are_known_by_their_first_bytes() {
        let short = |first: u8, id: u8, len: usize| {
            let mut datagram = vec![id; len];
            datagram[0] = first;
            datagram
        };
        // The bits of the first byte are protected and differ from packet to packet.
        assert!(same_short_header(&short(0x41, 7, 1200), &short(0x5e, 7, 40)));
        assert!(!same_short_header(&short(0x41, 7, 1200), &short(0x41, 8, 1200)));
        assert!(!same_short_header(&short(0xc1, 7, 1200), &short(0xc1, 7, 1200)), "long headers are routed one by one");
        assert!(!same_short_header(&short(0x41, 7, 1200), &short(0x41, 7, 8)));
        // Another ID of the same connection may be another path's.
        assert!(!belongs_with(&short(0x41, 7, 1200), &short(0x41, 8, 1200), || true));
        assert!(belongs_with(&short(0x41, 7, 1200), &short(0x5e, 7, 40), || false));
        assert!(
            belongs_with(&short(0xc1, 7, 1200), &short(0x41, 9, 1200), || true),
            "the handshake's IDs are one path's"
        );
    }
}
