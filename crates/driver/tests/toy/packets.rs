//! Batches, plans and jobs that open batches.

use driver::protocol::Batch;

use crate::connection::Receipt;
use crate::send::Payload;
use crate::wire::{Header, apply_keystream, is_intact, segments};

/// Segments that arrived together: of one connection or of several.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segments {
    pub(crate) bytes: Vec<u8>,
}

impl Batch for Segments {
    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn packet_count(&self) -> usize {
        segments(&self.bytes).count()
    }

    fn split_front(&mut self, len_bytes: usize) -> Self {
        let rest = self.bytes.split_off(len_bytes);
        Self { bytes: std::mem::replace(&mut self.bytes, rest) }
    }
}

/// A segment to be sealed.
pub(crate) struct Planned {
    pub(crate) header: Header,
    pub(crate) payload: Option<Payload>,
    /// The offset of the payload in its stream.
    pub(crate) offset: u64,
}

#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) segments: Vec<Planned>,
    pub(crate) key: u64,
    pub(crate) receipt: Receipt,
    pub(crate) panics: bool,
}

impl driver::protocol::Plan for Plan {
    type Sealed = Vec<u8>;

    fn socket(&self) -> Option<usize> {
        Some(0)
    }

    fn packet_count(&self) -> usize {
        self.segments.len()
    }

    fn is_full(&self, packets_max: usize) -> bool {
        self.segments.len() >= packets_max
    }

    /// Copies, encrypts and writes checksums.
    fn seal(&self, out: &mut Vec<u8>) {
        assert!(!self.panics, "the test has requested this panic");
        out.clear();
        for Planned { header, payload, offset } in &self.segments {
            header.write(out, |bytes| {
                if let Some(payload) = payload {
                    bytes.copy_from_slice(&payload.chunk[payload.range.clone()]);
                    apply_keystream(self.key, *offset, bytes);
                }
            });
        }
    }

    fn release(&mut self) {
        self.segments.clear();
    }
}

/// Finds the segments of a batch whose checksums are right.
#[derive(Debug, Default)]
pub(crate) struct OpenJob {
    pub(crate) opened: Vec<(usize, Header)>,
}

impl driver::protocol::OpenJob for OpenJob {
    type Batch = Segments;

    fn open(&mut self, batch: &mut Segments) {
        self.opened.clear();
        let intact = |(at, header): &(usize, Header)| is_intact(&batch.bytes[*at..*at + header.segment_len()]);
        self.opened.extend(segments(&batch.bytes).filter(intact));
    }

    fn clear(&mut self) {
        self.opened.clear();
    }
}
