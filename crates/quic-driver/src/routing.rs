//! Grouping the datagrams of a received batch by connection ID, without keys.

use quic::LOCAL_ID_LEN;

/// A local connection ID, as found in a short header.
pub type LocalId = [u8; LOCAL_ID_LEN];

/// Returns the length in bytes of the longest prefix of `data` whose datagrams all have short
/// headers with the connection ID of the first one.
pub fn same_cid_prefix(data: &[u8], stride: usize) -> usize {
    let first = &data[..stride.min(data.len())];
    let rest = data[first.len()..].chunks(stride);
    first.len() + rest.take_while(|datagram| same_short_header(first, datagram)).map(<[u8]>::len).sum::<usize>()
}

/// Returns whether `datagram` can be processed in one batch with `first`, the first one. `is_same`
/// looks up whether both belong to one connection. Short headers with different connection IDs may
/// belong to different paths, which are opened separately.
pub(crate) fn is_in_same_batch(first: &[u8], datagram: &[u8], is_same: impl FnOnce() -> bool) -> bool {
    same_short_header(first, datagram) || ((has_long_header(first) || has_long_header(datagram)) && is_same())
}

/// Returns the connection ID of a datagram with a short header.
pub fn local_id(datagram: &[u8]) -> Option<LocalId> {
    let (_, rest) = datagram.split_first().filter(|_| !has_long_header(datagram))?;
    rest.first_chunk().copied()
}

fn has_long_header(datagram: &[u8]) -> bool {
    const LONG: u8 = 0x80;
    datagram.first().is_some_and(|first| first & LONG != 0)
}

/// Returns whether both have short headers with the same connection ID. The other header bits may
/// differ.
fn same_short_header(first: &[u8], datagram: &[u8]) -> bool {
    local_id(first).is_some_and(|id| local_id(datagram) == Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_with_one_connection_id_form_one_batch() {
        let short = |first: u8, id: u8, len: usize| {
            let mut datagram = vec![id; len];
            datagram[0] = first;
            datagram
        };
        // The bits of the first byte are protected and differ from packet to packet.
        assert!(same_short_header(&short(0x41, 7, 1200), &short(0x5e, 7, 40)));
        assert!(!same_short_header(&short(0x41, 7, 1200), &short(0x41, 8, 1200)));
        assert!(
            !same_short_header(&short(0xc1, 7, 1200), &short(0xc1, 7, 1200)),
            "long headers are routed one at a time"
        );
        assert!(!same_short_header(&short(0x41, 7, 1200), &short(0x41, 7, 8)));
        // Another ID of the same connection may belong to another path.
        assert!(!is_in_same_batch(&short(0x41, 7, 1200), &short(0x41, 8, 1200), || true));
        assert!(is_in_same_batch(&short(0x41, 7, 1200), &short(0x5e, 7, 40), || false));
        assert!(is_in_same_batch(&short(0xc1, 7, 1200), &short(0x41, 9, 1200), || true), "the handshake uses one path");
    }
}
