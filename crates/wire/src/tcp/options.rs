//! Options (RFC 9293, section 3.2).

use units::Seq32;

use super::sack::SackBlocks;

/// Maximum shift of a window (RFC 7323, section 2.3).
pub const WINDOW_SCALE_MAX: u8 = 14;

/// Option numbers of the IANA registry.
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
    pub(super) const MD5: u8 = 19;
    pub(super) const ACCECN0: u8 = 172;
    pub(super) const ACCECN1: u8 = 174;
}

/// Lengths of the options, including the kind and length bytes.
mod length {
    pub(super) const MSS: usize = 4;
    pub(super) const WINDOW_SCALE: usize = 3;
    pub(super) const SACK_PERMITTED: usize = 2;
    pub(super) const TIMESTAMPS: usize = 10;
    pub(super) const MD5: usize = 18;
}

/// The options of a segment. If an option occurs twice, the last one counts.
#[derive(Debug, Copy, Clone, Eq, PartialEq, Default)]
pub struct Options {
    /// Maximum segment size, in SYN segments only (RFC 9293, section 3.7.1).
    pub mss: Option<u16>,
    /// Shift of the windows that the sender announces, in SYN segments only (RFC 7323, section 2).
    /// A shift above [`WINDOW_SCALE_MAX`] is parsed as that maximum.
    pub window_scale: Option<u8>,
    /// Whether the sender supports selective acknowledgements, in SYN segments only (RFC 2018,
    /// section 2).
    pub sack_permitted: bool,
    /// Timestamps (RFC 7323, section 3).
    pub timestamps: Option<Timestamps>,
    /// Selective acknowledgements (RFC 2018, section 3).
    pub sack: SackBlocks,
    /// Digest of the segment (RFC 2385). The caller must verify it.
    pub md5: Option<[u8; 16]>,
    /// Counters of Accurate ECN (RFC 9768, section 3.2.3).
    pub accecn: Option<AccEcn>,
}

/// Timestamps (RFC 7323, section 3.2).
#[derive(Debug, Copy, Clone, Eq, PartialEq, Default)]
pub struct Timestamps {
    /// The sender's clock: TSval.
    pub value: u32,
    /// The latest value received, significant with ACK: TSecr.
    pub echo: u32,
}

/// Counters of received bytes, modulo 2^24 (RFC 9768, section 3.2.3). The option has all three
/// counters, none, or a prefix of one of two orders: `e0, ce, e1` or `e1, ce, e0`. Counters that
/// cannot be sent are omitted: `ce` alone, and `e1` with `e0` but without `ce`.
#[derive(Debug, Copy, Clone, Eq, PartialEq, Default)]
pub struct AccEcn {
    /// Bytes marked ECT(0): EE0B.
    pub e0_bytes: Option<u32>,
    /// Bytes marked CE: ECEB.
    pub ce_bytes: Option<u32>,
    /// Bytes marked ECT(1): EE1B.
    pub e1_bytes: Option<u32>,
}

impl AccEcn {
    /// Returns the kind, and the counters in wire order.
    fn layout(&self) -> (u8, [Option<u32>; 3]) {
        if self.e0_bytes.is_none() && self.e1_bytes.is_some() {
            (kind::ACCECN1, [self.e1_bytes, self.ce_bytes, self.e0_bytes])
        } else {
            (kind::ACCECN0, [self.e0_bytes, self.ce_bytes, self.e1_bytes])
        }
    }

    /// Returns the counters that are sent, in wire order.
    fn fields(&self) -> impl Iterator<Item = u32> {
        self.layout().1.into_iter().map_while(|field| field)
    }

    fn len(&self) -> usize {
        2 + 3 * self.fields().count()
    }

    /// Parses the option: complete counters that fit count, and the rest is ignored (RFC 9768,
    /// section 3.2.3).
    fn parse(kind: u8, body: &[u8]) -> Self {
        let mut fields = body.chunks_exact(3).map(|field| u32::from_be_bytes([0, field[0], field[1], field[2]]));
        let [first, ce_bytes, last] = [fields.next(), fields.next(), fields.next()];
        let (e0_bytes, e1_bytes) = if kind == kind::ACCECN0 { (first, last) } else { (last, first) };
        Self { e0_bytes, ce_bytes, e1_bytes }
    }
}

impl Options {
    /// Parses the options of a header. Three of them are ignored in segments without SYN, as RFC
    /// 7323, section 2.2, requires for the window scale.
    #[inline]
    pub(super) fn parse(bytes: &[u8], is_syn: bool) -> Self {
        // This is the layout that RFC 7323, appendix A, recommends, and that nearly all segments
        // have.
        if let Ok(&[kind::NOP, kind::NOP, kind::TIMESTAMPS, LEN, a, b, c, d, e, f, g, h]) = <&[u8; 12]>::try_from(bytes)
        {
            let timestamps =
                Timestamps { value: u32::from_be_bytes([a, b, c, d]), echo: u32::from_be_bytes([e, f, g, h]) };
            return Self { timestamps: Some(timestamps), ..Self::default() };
        }
        let mut options = Self::default();
        if !bytes.is_empty() {
            options.read(bytes, is_syn);
        }
        options
    }

    fn read(&mut self, mut bytes: &[u8], is_syn: bool) {
        loop {
            match *bytes {
                [] | [kind::END, ..] => return,
                [kind::NOP, ..] => bytes = &bytes[1..],
                [kind, len, ..] => {
                    let Some((option, rest)) = bytes.split_at_checked(usize::from(len)) else { return };
                    let Some(body) = option.get(2..) else { return };
                    self.set(kind, body, is_syn);
                    bytes = rest;
                }
                [_] => return,
            }
        }
    }

    fn set(&mut self, kind: u8, body: &[u8], is_syn: bool) {
        match (kind, body) {
            (kind::MSS, &[high, low]) if is_syn => self.mss = Some(u16::from_be_bytes([high, low])),
            // A larger shift MUST be used as 14 (RFC 7323, section 2.3).
            (kind::WINDOW_SCALE, &[shift]) if is_syn => self.window_scale = Some(shift.min(WINDOW_SCALE_MAX)),
            (kind::SACK_PERMITTED, []) if is_syn => self.sack_permitted = true,
            (kind::SACK, blocks) => {
                if let (blocks @ [_, ..], []) = blocks.as_chunks::<8>() {
                    self.sack = sack(blocks);
                }
            }
            (kind::TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
                let (value, echo) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
                self.timestamps = Some(Timestamps { value, echo });
            }
            (kind::MD5, digest) => self.md5 = digest.try_into().ok().or(self.md5),
            (kind::ACCECN0 | kind::ACCECN1, body) => self.accecn = Some(AccEcn::parse(kind, body)),
            _ => {}
        }
    }

    /// Returns the length of the options with their padding: a multiple of 4, not limited to 40.
    #[inline]
    pub(super) fn len(&self) -> usize {
        let mut len = 0;
        if self.mss.is_some() {
            len += length::MSS;
        }
        if self.window_scale.is_some() {
            len += padded(length::WINDOW_SCALE);
        }
        len += match (self.sack_permitted, self.timestamps) {
            (true, Some(_)) => padded(length::SACK_PERMITTED + length::TIMESTAMPS),
            (true, None) => padded(length::SACK_PERMITTED),
            (false, Some(_)) => padded(length::TIMESTAMPS),
            (false, None) => 0,
        };
        if self.md5.is_some() {
            len += padded(length::MD5);
        }
        if !self.sack.is_empty() {
            len += padded(2 + 8 * self.sack.len());
        }
        if let Some(accecn) = &self.accecn {
            len += padded(accecn.len());
        }
        len
    }

    /// Appends the options. Each follows its padding, so that all end at a multiple of 4; this
    /// aligns their fields, and puts timestamps where other implementations expect them.
    #[inline]
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        if let Some(mss) = self.mss {
            out.extend_from_slice(&[kind::MSS, length::MSS as u8]);
            out.extend_from_slice(&mss.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            out.extend_from_slice(&[kind::NOP, kind::WINDOW_SCALE, length::WINDOW_SCALE as u8, shift]);
        }
        // SACK-permitted takes the place of the padding before the timestamps.
        if self.sack_permitted {
            if self.timestamps.is_none() {
                out.extend_from_slice(&[kind::NOP, kind::NOP]);
            }
            out.extend_from_slice(&[kind::SACK_PERMITTED, length::SACK_PERMITTED as u8]);
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            if !self.sack_permitted {
                out.extend_from_slice(&[kind::NOP, kind::NOP]);
            }
            out.extend_from_slice(&[kind::TIMESTAMPS, length::TIMESTAMPS as u8]);
            out.extend_from_slice(&value.to_be_bytes());
            out.extend_from_slice(&echo.to_be_bytes());
        }
        if let Some(digest) = &self.md5 {
            out.extend_from_slice(&[kind::NOP, kind::NOP, kind::MD5, length::MD5 as u8]);
            out.extend_from_slice(digest);
        }
        if !self.sack.is_empty() {
            let len = 2 + 8 * self.sack.len();
            out.extend_from_slice(&[kind::NOP, kind::NOP, kind::SACK, len as u8]);
            for (start, end) in self.sack.iter() {
                out.extend_from_slice(&start.get().to_be_bytes());
                out.extend_from_slice(&end.get().to_be_bytes());
            }
        }
        if let Some(accecn) = &self.accecn {
            let len = accecn.len();
            out.resize(out.len() + padded(len) - len, kind::NOP);
            out.extend_from_slice(&[accecn.layout().0, len as u8]);
            for field in accecn.fields() {
                out.extend_from_slice(&field.to_be_bytes()[1..]);
            }
        }
    }
}

const LEN: u8 = length::TIMESTAMPS as u8;

const fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Parses the blocks. A header cannot hold more than [`SackBlocks`] does.
fn sack(received: &[[u8; 8]]) -> SackBlocks {
    let mut blocks = SackBlocks::default();
    for &[a, b, c, d, e, f, g, h] in received {
        let (start, end) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        blocks.push(Seq32::new(start), Seq32::new(end));
    }
    blocks
}
