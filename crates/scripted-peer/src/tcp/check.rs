//! [`StreamCheck`]: all checks that the script omits because they would cost time: it verifies each
//! digest, opens each record and compares each byte.

use bytes::Bytes;
use layers::secret::{Direction, SALT_LEN};
use layers::{RecordKey, RecordReader};
use tcp_driver::Layers;
use units::Seq32;
use wire::ip;

use crate::pattern::Pattern;

/// Checks the data from the measured end: the endless [pattern](Pattern).
#[derive(Debug)]
pub struct StreamCheck {
    layers: Layers,
    pattern: PatternAt,
    /// Initial sequence numbers of the measured end and of the script.
    initial: (Seq32, Seq32),
    reader: RecordReader,
    key: Option<RecordKey>,
    records: u64,
    hasher: blake3::Hasher,
}

/// Progress of the comparison with the pattern.
struct PatternAt {
    pattern: Pattern,
    bytes: u64,
}

impl std::fmt::Debug for PatternAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

impl PatternAt {
    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        if !self.pattern.matches(self.bytes, bytes) {
            return Err(format!("byte {} or one of the next {} is not what was written", self.bytes, bytes.len()));
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

impl StreamCheck {
    /// Creates a check of a stack with these layers.
    pub fn new(layers: Layers) -> Self {
        let (initial, hasher) = ((Seq32::new(0), Seq32::new(0)), blake3::Hasher::new());
        let pattern = PatternAt { pattern: Pattern::new(), bytes: 0 };
        Self { layers, pattern, initial, reader: RecordReader::default(), key: None, records: 0, hasher }
    }

    pub(crate) fn begin(&mut self, sender: Seq32, receiver: Seq32) {
        self.initial = (sender, receiver);
    }

    /// Returns the number of application bytes compared.
    pub const fn bytes(&self) -> u64 {
        self.pattern.bytes
    }

    /// Returns a digest of the segments: their positions, lengths and data. It does not cover
    /// acknowledgements, or flags that depend on the times of the application's writes.
    pub fn wire_digest(&self) -> String {
        self.hasher.finalize().to_hex().to_string()
    }

    /// Checks the next packet, whose data start at `data_at`.
    pub(crate) fn take(&mut self, packet: &[u8], data_at: usize, seq: Seq32) -> Result<(), String> {
        if let Some(key) = self.layers.digest() {
            let parsed = ip::Packet::parse(packet).map_err(|error| error.to_string())?;
            key.verify(&parsed, packet).map_err(|error| error.to_string())?;
        }
        let data = &packet[data_at..];
        self.hasher.update(&seq.distance_from(self.initial.0).to_be_bytes());
        self.hasher.update(&data.len().to_be_bytes());
        self.hasher.update(data);
        let Some(layer) = self.layers.stack().cipher else { return self.pattern.take(data) };
        self.reader.push(Bytes::copy_from_slice(data));
        if self.key.is_none() {
            let Some(salt) = self.reader.take_array::<SALT_LEN>() else { return Ok(()) };
            let (sender, receiver) = self.initial;
            let direction = Direction { salt, sender_initial: sender.get(), receiver_initial: receiver.get() };
            self.key = Some(self.layers.secret().record_key(layer, &direction));
        }
        let Some(key) = &self.key else { return Ok(()) };
        while let Some(record) = self.reader.next_record().map_err(|error| error.to_string())? {
            let mut content = Vec::new();
            key.open(self.records, &record, &mut content).map_err(|error| error.to_string())?;
            self.records += 1;
            self.pattern.take(&content)?;
        }
        Ok(())
    }
}
