//! Packets of a protocol: received [`Batch`]es, [`OpenJob`]s that open them, and [`Plan`]s to be
//! sent.

/// Packets received together from one socket.
pub trait Batch: Sized {
    /// Returns the length of all packets in bytes.
    fn len_bytes(&self) -> usize;

    /// Returns the number of packets.
    fn packet_count(&self) -> usize;

    /// Splits this many bytes off the front.
    #[must_use]
    fn split_front(&mut self, len_bytes: usize) -> Self;
}

/// A job that opens a batch. It shares no state with the connection.
pub trait OpenJob: Default {
    /// Packets received together.
    type Batch: Batch;

    /// Returns the ID of the batch's path; zero if the protocol has single-path connections.
    fn path(&self) -> u64 {
        0
    }

    /// Returns the work of opening `batch`, in bytes that a fast cipher decrypts in the same time.
    /// The driver uses it to decide whether another processor is worthwhile.
    fn work_bytes(&self, batch: &Self::Batch) -> usize {
        batch.len_bytes()
    }

    /// Opens `batch` in place. Deterministic: the same job gives the same result on any processor.
    fn open(&mut self, batch: &mut Self::Batch);

    /// Drops its references and keeps its memory for reuse.
    fn clear(&mut self) {}
}

/// Packets to be sent. A plan shares no state with the connection.
pub trait Plan: Default {
    /// Encrypted packets.
    type Sealed;

    /// Returns the socket through which to send it. `None` if the plan is empty.
    fn socket(&self) -> Option<usize>;

    /// Returns the ID of its path; zero if the protocol has single-path connections.
    fn path(&self) -> u64 {
        0
    }

    /// Returns the number of its packets.
    fn packet_count(&self) -> usize;

    /// Returns whether it is full for a socket that accepts this many packets at a time.
    fn is_full(&self, packets_max: usize) -> bool;

    /// Returns whether all of its data has background class.
    fn is_background(&self) -> bool {
        false
    }

    /// Builds and encrypts its packets. Deterministic: the same plan gives the same packets on any
    /// processor, regardless of the previous content of `out`.
    fn seal(&self, out: &mut Self::Sealed);

    /// Drops its references and keeps its memory for reuse.
    fn release(&mut self) {}

    /// Seals like [`seal`](Self::seal), a plan that is not used afterwards.
    fn seal_once(&mut self, out: &mut Self::Sealed) {
        self.seal(out);
    }
}
