//! Packets of a protocol: [`Batch`]es that were received, [`OpenJob`]s that open them, and [`Plan`]s to
//! be sent.

/// Packets received together from one socket.
pub trait Batch: Sized {
    /// The length of all packets in bytes.
    fn len_bytes(&self) -> usize;

    /// The number of packets.
    fn packet_count(&self) -> usize;

    /// Splits this many bytes off the front.
    #[must_use]
    fn split_front(&mut self, len_bytes: usize) -> Self;
}

/// A job that opens a batch. Shares no state with the connection.
pub trait OpenJob: Default {
    /// Packets received together.
    type Batch: Batch;

    /// The ID of the batch's path; zero if the protocol has single-path connections.
    fn path(&self) -> u64 {
        0
    }

    /// The work of opening `batch`, in bytes that a fast cipher decrypts in the same time. It decides
    /// whether another processor is worthwhile.
    fn work_bytes(&self, batch: &Self::Batch) -> usize {
        batch.len_bytes()
    }

    /// Opens `batch` in place. Deterministic: the same job gives the same result on any processor.
    fn open(&mut self, batch: &mut Self::Batch);

    /// Drops its references and keeps its memory, to be reused.
    fn clear(&mut self) {}
}

/// Packets to be sent. Shares no state with the connection.
pub trait Plan: Default {
    /// Encrypted packets.
    type Sealed;

    /// The socket to send it through. `None` if it is empty.
    fn socket(&self) -> Option<usize>;

    /// The ID of its path; zero if the protocol has single-path connections.
    fn path(&self) -> u64 {
        0
    }

    /// The number of its packets.
    fn packet_count(&self) -> usize;

    /// Whether it is full for a socket that takes this many packets at a time.
    fn is_full(&self, packets_max: usize) -> bool;

    /// Whether all of its data has background class.
    fn is_background(&self) -> bool {
        false
    }

    /// Builds and encrypts its packets. Deterministic: the same plan gives the same packets on any
    /// processor, whatever `out` holds before.
    fn seal(&self, out: &mut Self::Sealed);

    /// Drops its references and keeps its memory, to be reused.
    fn release(&mut self) {}

    /// As [`seal`](Self::seal), for a plan that is not used afterwards.
    fn seal_once(&mut self, out: &mut Self::Sealed) {
        self.seal(out);
    }
}
