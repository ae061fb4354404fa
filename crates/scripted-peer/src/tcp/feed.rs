//! [`Feeder`]: packets of the script that are made in advance, on all processors.

use bytes::Bytes;
use layers::secret::{Direction, Salt};
use layers::{RecordKey, RecordKind};
use tcp::{HeaderBelow, Tuple};
use tcp_driver::Layers;
use units::Seq32;
use wire::checksum;
use wire::ip::{self, Protocol};
use wire::tcp::{self as tcp_wire, Flags, Header, Options};

use crate::pattern::Pattern;

/// Window of the script in units of its scale: a gibibyte never limits a transfer.
const WINDOW: u16 = u16::MAX;

/// The script's salt: it need not be secret, and there is one connection.
const SALT: Salt = [6; 32];

/// A packet of the script, without its data.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub(super) tuple: Tuple,
    pub(super) seq: Seq32,
    pub(super) ack: Seq32,
    pub(super) flags: Flags,
    pub(super) options: Options,
}

/// A packet made in advance.
#[derive(Debug, Clone)]
pub struct Fed {
    pub(super) packet: Bytes,
    /// Sequence number after it.
    pub(super) end: Seq32,
}

impl Outgoing {
    /// Appends the packet, with the data that `data` appends.
    pub(super) fn write(&self, layers: &Layers, out: &mut Vec<u8>, data: impl FnOnce(&mut Vec<u8>)) {
        let Tuple { local, remote } = self.tuple;
        let header = Header {
            source_port: local.port(),
            destination_port: remote.port(),
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: WINDOW,
            urgent: 0,
            options: self.options,
        };
        let below = layers.below();
        let ip = ip::Header {
            source: local.ip(),
            destination: remote.ip(),
            protocol: below.map_or(Protocol::TCP, HeaderBelow::protocol),
            hop_limit: 64,
            dscp: 0,
            ecn: None,
            id: 0,
            may_fragment: false,
        };
        // The data come first, because their length is in the header.
        let mut segment = Vec::new();
        header.emit(&mut segment);
        data(&mut segment);
        let pseudo = checksum::pseudo_header(local.ip(), remote.ip(), Protocol::TCP, segment.len() as u32);
        tcp_wire::fill_checksum(&mut segment, pseudo);
        let from = out.len();
        ip.emit(layers.below_len() + segment.len(), out);
        let ip_len = out.len() - from;
        out.resize(out.len() + layers.below_len(), 0);
        out.extend_from_slice(&segment);
        if let Some(below) = below {
            below.fill(&mut out[from..], ip_len);
        }
    }
}

/// Creates the data of one connection: the endless [pattern](Pattern).
pub struct Feeder {
    layers: Layers,
    /// Header of the next packet.
    next: Outgoing,
    key: Option<RecordKey>,
    payload: usize,
    pattern: Pattern,
    /// Number of packets made.
    packets: u64,
    /// Application bytes in them.
    bytes: u64,
}

/// A packet to make.
struct Step {
    header: Outgoing,
    number: u64,
    offset: u64,
    len: usize,
}

impl Feeder {
    pub(super) fn new(layers: Layers, next: Outgoing, payload: usize, sender: Seq32, receiver: Seq32) -> Self {
        let direction = Direction { salt: SALT, sender_initial: sender.get(), receiver_initial: receiver.get() };
        let key = layers.stack().cipher.map(|layer| layers.secret().record_key(layer, &direction));
        Self { layers, next, key, payload, pattern: Pattern::new(), packets: 0, bytes: 0 }
    }

    /// Returns the number of application bytes in all packets made.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the acknowledgement of the next packets. A receiver drops packets that acknowledge less
    /// than the largest window before what it has sent (RFC 5961, section 5.2).
    pub fn set_ack(&mut self, ack: Seq32) {
        self.next.ack = ack;
    }

    /// Makes packets with at least `bytes` application bytes, on all processors.
    pub fn make(&mut self, bytes: u64) -> Vec<Fed> {
        let end = self.bytes + bytes;
        let mut steps = Vec::new();
        while self.bytes < end {
            steps.push(self.step());
        }
        let share = steps.len().div_ceil(net::processors::count()).max(1);
        let this = &*self;
        std::thread::scope(|scope| {
            let parts = steps.chunks(share);
            let workers: Vec<_> = parts
                .map(|part| scope.spawn(move || part.iter().map(|step| this.packet(step)).collect::<Vec<_>>()))
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("sealing does not panic")).collect()
        })
    }

    fn step(&mut self) -> Step {
        // The salt and the first record together are as long as another record.
        let has_salt = self.packets == 0 && self.key.is_some();
        let len = self.payload - if has_salt { SALT.len() } else { 0 };
        let step = Step { header: self.next.clone(), number: self.packets, offset: self.bytes, len };
        let data_len = match self.layers.stack().cipher {
            None => len,
            Some(layer) => RecordKey::sealed_len(layer, len) + if has_salt { SALT.len() } else { 0 },
        };
        self.next.seq = self.next.seq + data_len as u32;
        (self.packets, self.bytes) = (self.packets + 1, self.bytes + len as u64);
        step
    }

    fn packet(&self, step: &Step) -> Fed {
        let content = self.pattern.at(step.offset, step.len);
        let mut packet = Vec::new();
        let mut data_len = 0;
        step.header.write(&self.layers, &mut packet, |out| {
            let from = out.len();
            match &self.key {
                None => content.iter().for_each(|piece| out.extend_from_slice(piece)),
                Some(key) => {
                    if step.number == 0 {
                        out.extend_from_slice(&SALT);
                    }
                    key.seal(step.number, RecordKind::Data, content.iter().copied(), out);
                }
            }
            data_len = out.len() - from;
        });
        Fed { packet: packet.into(), end: step.header.seq + data_len as u32 }
    }
}
