//! Packet captures in pcapng format (draft-ietf-opsawg-pcapng), which Wireshark and tcpdump open:
//! one file, one clock, one interface per end of a link.
//!
//! A model whose packets have only a length writes records without packet bytes.

use std::io;

use units::Instant;

/// Link-layer type of an interface, from the registry of link types
/// (draft-ietf-opsawg-pcaplinktype).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkType {
    /// Ethernet frames.
    Ethernet = 1,
    /// FDDI frames.
    Fddi = 10,
    /// IP packets, version 4 or 6.
    RawIp = 101,
    /// A model-specific format (`LINKTYPE_USER0`).
    User0 = 147,
}

/// Timestamp resolution of an interface in the file. The simulation itself always uses nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Resolution {
    /// Microseconds, which old readers expect.
    Micros,
    /// Nanoseconds, the full resolution of the simulation.
    #[default]
    Nanos,
}

/// An interface of a [`Capture`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterfaceId(u32);

/// Direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Received by the interface.
    Inbound = 1,
    /// Sent by the interface.
    Outbound = 2,
}

/// Writes a capture file. Nothing is buffered: each record is written at once.
pub struct Capture<W> {
    out: W,
    /// Maximum number of captured bytes per packet.
    snap_bytes: u32,
    interfaces: Vec<Resolution>,
    /// Buffer for one block.
    block: Vec<u8>,
}

/// Block types.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const DECRYPTION_SECRETS: u32 = 10;

/// The type of secrets in the format of `SSLKEYLOGFILE`: "TLSK".
const TLS_KEY_LOG: u32 = 0x544c_534b;

/// Written in little-endian order like all fields; readers detect the byte order from it.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// "Unknown": the section extends to the end of the file.
const SECTION_LENGTH_UNKNOWN: u64 = u64::MAX;

/// Option codes.
const END_OF_OPTIONS: u16 = 0;
const OPT_COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const EPB_FLAGS: u16 = 2;
const IF_TSRESOL: u16 = 9;

/// Length limit of comments, which are options; longer ones are truncated.
const COMMENT_BYTES_MAX: usize = 4096;
/// Length limit of names, which are options with a 16-bit length field; viewers do not show that
/// much.
const NAME_BYTES_MAX: usize = 255;

impl<W: io::Write> Capture<W> {
    /// Begins a file that captures at most `snap_bytes` bytes per packet.
    ///
    /// # Errors
    /// Fails if `out` fails.
    pub fn new(out: W, snap_bytes: u32) -> io::Result<Self> {
        Self::with_comment(out, snap_bytes, "")
    }

    /// Like [`new`](Self::new), with a comment that readers show, such as a description of the run.
    ///
    /// # Errors
    /// Fails if `out` fails.
    pub fn with_comment(out: W, snap_bytes: u32, comment: &str) -> io::Result<Self> {
        let mut capture = Self { out, snap_bytes, interfaces: Vec::new(), block: Vec::new() };
        capture.begin(SECTION_HEADER);
        capture.block.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        // Version 1.0.
        capture.block.extend([1, 0, 0, 0]);
        capture.block.extend(SECTION_LENGTH_UNKNOWN.to_le_bytes());
        if !comment.is_empty() {
            capture.option(OPT_COMMENT, beginning(comment, COMMENT_BYTES_MAX).as_bytes());
            capture.option(END_OF_OPTIONS, &[]);
        }
        capture.finish()?;
        Ok(capture)
    }

    /// Adds an interface.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn add_interface(&mut self, name: &str, kind: LinkType, resolution: Resolution) -> io::Result<InterfaceId> {
        let snap_bytes = self.snap_bytes;
        self.begin(INTERFACE_DESCRIPTION);
        self.block.extend((kind as u16).to_le_bytes());
        self.block.extend([0, 0]);
        self.block.extend(snap_bytes.to_le_bytes());
        self.option(IF_NAME, beginning(name, NAME_BYTES_MAX).as_bytes());
        let exponent = match resolution {
            Resolution::Micros => 6,
            Resolution::Nanos => 9,
        };
        self.option(IF_TSRESOL, &[exponent]);
        self.option(END_OF_OPTIONS, &[]);
        self.finish()?;
        self.interfaces.push(resolution);
        Ok(InterfaceId(self.interfaces.len() as u32 - 1))
    }

    /// Adds TLS secrets, in the format of `SSLKEYLOGFILE` (RFC 9850): readers decrypt the packets
    /// after them. Anyone who has the file can decrypt them, too.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn tls_secrets(&mut self, key_log: &[u8]) -> io::Result<()> {
        self.begin(DECRYPTION_SECRETS);
        self.block.extend(TLS_KEY_LOG.to_le_bytes());
        self.block.extend((key_log.len() as u32).to_le_bytes());
        self.block.extend(key_log);
        self.pad();
        self.finish()
    }

    /// Records a packet of `length` bytes at `interface` at time `at`. `bytes` are its leading
    /// bytes, as far as they are known; may be empty.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    ///
    /// # Panics
    /// Panics if the interface belongs to another capture, or `bytes` is longer than `length`.
    pub fn packet(
        &mut self,
        interface: InterfaceId,
        direction: Direction,
        at: Instant,
        bytes: &[u8],
        length: u32,
    ) -> io::Result<()> {
        assert!(bytes.len() as u64 <= u64::from(length), "{} bytes of a packet of {length}", bytes.len());
        let time = match self.interfaces[interface.0 as usize] {
            Resolution::Micros => at.as_nanos() / 1000,
            Resolution::Nanos => at.as_nanos(),
        };
        let kept = &bytes[..bytes.len().min(self.snap_bytes as usize)];
        self.begin(ENHANCED_PACKET);
        for word in [interface.0, (time >> 32) as u32, time as u32, kept.len() as u32, length] {
            self.block.extend(word.to_le_bytes());
        }
        self.block.extend(kept);
        self.pad();
        self.option(EPB_FLAGS, &(direction as u32).to_le_bytes());
        self.option(END_OF_OPTIONS, &[]);
        self.finish()
    }

    /// Completes the file and returns the writer.
    ///
    /// # Errors
    /// Fails if the last bytes cannot be written.
    pub fn finish_file(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.block.extend(kind.to_le_bytes());
        // The total length, filled in by `finish`.
        self.block.extend([0; 4]);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.block.extend(code.to_le_bytes());
        self.block.extend((value.len() as u16).to_le_bytes());
        self.block.extend(value);
        self.pad();
    }

    /// Blocks and options are padded to 32 bits.
    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn finish(&mut self) -> io::Result<()> {
        // The length is at both ends, so that files can be read backwards.
        let length = (self.block.len() as u32 + 4).to_le_bytes();
        self.block[4..8].copy_from_slice(&length);
        self.block.extend(length);
        self.out.write_all(&self.block)
    }
}

/// Returns the longest prefix of `text` of at most `bytes` bytes. (`str::floor_char_boundary` needs
/// a newer compiler than the oldest supported one.)
fn beginning(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use netem::LinkConfig;
    use units::{Duration, Rate};

    use super::*;
    use crate::hardware::line::Line;
    use crate::kernel::Simulation;

    /// Returns the blocks of a file, as type and body. Checks the lengths at both ends.
    fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
        let mut blocks = Vec::new();
        while !file.is_empty() {
            let length = word(&file[4..]) as usize;
            assert_eq!((length % 4, word(&file[length - 4..]) as usize), (0, length));
            blocks.push((word(file), &file[8..length - 4]));
            file = &file[length..];
        }
        blocks
    }

    #[test]
    fn a_link_is_captured_at_both_ends_on_one_clock() {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let mut capture = Capture::new(Vec::new(), 8).unwrap();
        let ends =
            ["left", "right"].map(|name| capture.add_interface(name, LinkType::User0, Resolution::Nanos).unwrap());
        let capture = Rc::new(RefCell::new(capture));
        let config = LinkConfig { rate: Some(Rate::from_mbps(100)), ..LinkConfig::default() };
        let line: Line<[u8; 12]> = Line::new(&sim, "line", config).unwrap();
        let (file, clock) = (Rc::clone(&capture), sim.clone());
        line.on_delivery(move |packet| {
            let length = packet.bytes as u32;
            file.borrow_mut().packet(ends[1], Direction::Inbound, clock.now(), &packet.item, length).unwrap();
        });
        let (file, sender) = (Rc::clone(&capture), line);
        simulation.spawn(async move {
            for number in 0..3 {
                sim.sleep(Duration::from_nanos(5_000_000_007)).await;
                file.borrow_mut().packet(ends[0], Direction::Outbound, sim.now(), &[number; 12], 1_250).unwrap();
                sender.send(1_250, [number; 12]);
            }
        });
        simulation.run();
        drop(simulation);
        let Some(capture) = Rc::into_inner(capture) else { panic!("the run is over") };
        let file = capture.into_inner().finish_file().unwrap();
        let blocks = blocks(&file);
        assert_eq!(blocks.iter().map(|block| block.0).collect::<Vec<_>>(), [SECTION_HEADER, 1, 1, 6, 6, 6, 6, 6, 6]);
        assert_eq!(&blocks[1].1[12..16], b"left");
        let word = |block: &[u8], index: usize| u32::from_le_bytes(block[4 * index..4 * index + 4].try_into().unwrap());
        let packets: Vec<_> = blocks[3..]
            .iter()
            .map(|(_, body)| {
                let time = u64::from(word(body, 1)) << 32 | u64::from(word(body, 2));
                assert_eq!((word(body, 3), word(body, 4)), (8, 1_250), "8 of 1250 bytes are captured");
                (word(body, 0), time, body[20])
            })
            .collect();
        // 1250 bytes at 100 Mb/s take 100 us.
        let times = [1, 2, 3].map(|number| number * 5_000_000_007);
        let expected = [0, 1, 2].map(|at| [(0, times[at], at as u8), (1, times[at] + 100_000, at as u8)]).concat();
        assert_eq!(packets, expected);
    }

    #[test]
    fn secrets_are_a_block_of_their_own_in_the_order_of_calls() {
        let mut capture = Capture::new(Vec::new(), 100).unwrap();
        let interface = capture.add_interface("a", LinkType::RawIp, Resolution::Nanos).unwrap();
        capture.tls_secrets(b"CLIENT_RANDOM 00 11\n").unwrap();
        capture.packet(interface, Direction::Outbound, Instant::ZERO, &[], 9).unwrap();
        capture.tls_secrets(b"X\n").unwrap();
        let file = capture.finish_file().unwrap();
        let blocks = blocks(&file);
        assert_eq!(blocks.iter().map(|block| block.0).collect::<Vec<_>>(), [SECTION_HEADER, 1, 10, 6, 10]);
        assert_eq!(blocks[2].1, b"KSLT\x14\0\0\0CLIENT_RANDOM 00 11\n");
        assert_eq!(blocks[4].1, b"KSLT\x02\0\0\0X\n\0\0", "padded to 32 bits");
    }

    #[test]
    fn lengths_without_bytes_and_microseconds_work_and_names_are_cut_at_characters() {
        let mut capture = Capture::new(Vec::new(), 100).unwrap();
        let name = "ü".repeat(200);
        let interface = capture.add_interface(&name, LinkType::RawIp, Resolution::Micros).unwrap();
        capture.packet(interface, Direction::Outbound, Instant::from_nanos(1_999), &[], 9_000).unwrap();
        let file = capture.finish_file().unwrap();
        let blocks = blocks(&file);
        assert_eq!(u16::from_le_bytes(blocks[1].1[10..12].try_into().unwrap()), 254);
        // Interface 0, 1 us, no bytes of 9000.
        let words: Vec<u32> =
            blocks[2].1[..20].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, [0, 0, 1, 0, 9_000]);
    }

    #[test]
    fn a_write_failure_is_an_error() {
        let full = io::Cursor::new([0; 40]);
        let mut capture = Capture::new(full, 100).unwrap();
        assert!(capture.add_interface("left", LinkType::Ethernet, Resolution::Nanos).is_err());
    }
}
