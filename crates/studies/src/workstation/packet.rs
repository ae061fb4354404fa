//! The packets between machines, and those that wait to be sent.

/// The payload of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packet {
    Data(Data),
    Ack(Ack),
}

/// A data packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) connection: usize,
    /// Number within its connection.
    pub(super) sequence: u64,
    /// Number among all packets of the application, in order of generation. `None`: a small
    /// message, which has no order.
    pub(super) place: Option<u64>,
    pub(super) bits: u64,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub(super) connection: usize,
    /// All packets before this sequence number are acknowledged.
    pub(super) next: u64,
    /// This packet is acknowledged as well.
    pub(super) only: Option<u64>,
    /// This packet arrived with an error: it and all after it must be retransmitted.
    pub(super) bad: Option<u64>,
}

/// An outgoing packet in a machine's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutgoingPacket {
    /// The processor in whose memory it is.
    pub(super) processor: usize,
    pub(super) packet: Packet,
    pub(super) bytes: u64,
}
