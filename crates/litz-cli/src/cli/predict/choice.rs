//! Resolves `auto` in a prediction, and the number of connections of a placement.

use scenario::simulated::{Costs, End, Placement, Task};
use units::Duration;

/// The packet size for which the engine estimates the cost of the cipher, in bytes.
const CIPHER_PACKET_BYTES: usize = 1440;

/// The placements of both hosts with these numbers of processors and sockets: `placement`, or for
/// `auto` the one that an endpoint chooses when it starts.
pub(super) fn resolve(placement: Placement, costs: &Costs, processors: [usize; 2], sockets: usize) -> [Placement; 2] {
    let cipher = Duration::from_nanos(costs.packet_ns(End::Sending, Task::Stage, CIPHER_PACKET_BYTES).round() as u64);
    processors.map(|count| match placement {
        Placement::Auto => Placement::suited(count, sockets, Some(cipher)),
        named => named,
    })
}

/// Number of connections of a run: one for a scenario; for bulk data under `connection(n)` one per
/// processor.
pub(super) fn connections(placement: Placement, is_bulk: bool) -> usize {
    match placement {
        Placement::Connection(count) if is_bulk => count.max(1),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(seal_ns: u32) -> Costs {
        let rows = format!("{{\"points\":[{{\"datagram_bytes\":1472,\"ns\":{{\"seal.cipher\":{seal_ns}}}}}]}}");
        let text = format!(
            "{{\"format\":\"litz-profile\",\"version\":1,\"memory\":{{\"sending\":{rows},\"receiving\":{rows}}}}}"
        );
        Costs::from_profile(&text).expect("a valid profile")
    }

    #[test]
    fn auto_resolves_as_the_engine_would_choose() {
        let auto = |seal_ns, processors, sockets| resolve(Placement::Auto, &costs(seal_ns), processors, sockets);
        assert_eq!(auto(200, [8, 8], 1), [Placement::Thread; 2]);
        assert_eq!(auto(1200, [8, 8], 1), [Placement::Packet(6); 2]);
        assert_eq!(auto(1200, [1, 2], 1), [Placement::Thread, Placement::Packet(2)]);
        assert_eq!(auto(200, [8, 2], 3), [Placement::Path(3), Placement::Path(2)]);
        assert_eq!(resolve(Placement::Split, &costs(200), [1, 2], 3), [Placement::Split; 2]);
    }

    #[test]
    fn bulk_data_has_one_connection_per_processor_under_connection_n() {
        let count = |placement, is_bulk| connections(placement, is_bulk);
        assert_eq!((count(Placement::Connection(4), true), count(Placement::Connection(4), false)), (4, 1));
        assert_eq!((count(Placement::Auto, true), count(Placement::Packet(3), true)), (1, 1));
    }
}
