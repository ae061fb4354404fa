//! Arrivals in a log: the header and the length of the data.

use ::journal::format::{Malformed, Parsed, put, short, unzigzag, zigzag};
use ::journal::zeros;
use units::Seq32;
use wire::quic::Reader;
use wire::tcp::{AccEcn, Flags, Header, Options, SackBlocks, Timestamps};

use super::format::{bits_of, ecn_of};
use crate::arrival::Arrival;
use crate::tuple::Tuple;

/// Limit on data bytes in a segment: many times those of the longest IP packet.
const DATA_MAX: usize = 1 << 20;

/// Shift of the IP header's codepoint, above the nine flags.
const ECN_SHIFT: u32 = 9;
const FIRST_MAX: u64 = (1 << (ECN_SHIFT + 2)) - 1;

/// The largest counter of accurate ECN (RFC 9768, section 3.2.3).
const COUNTER_MAX: u32 = (1 << 24) - 1;

/// Bits for the parts after the fixed fields.
mod part {
    pub(super) const MSS: u8 = 1 << 0;
    pub(super) const WINDOW_SCALE: u8 = 1 << 1;
    pub(super) const SACK_PERMITTED: u8 = 1 << 2;
    pub(super) const TIMESTAMPS: u8 = 1 << 3;
    pub(super) const SACK: u8 = 1 << 4;
    pub(super) const ACCECN: u8 = 1 << 5;
    /// The device has joined several segments.
    pub(super) const JOINED: u8 = 1 << 6;
    pub(super) const URGENT: u8 = 1 << 7;
}

/// The numbers of the last segment: the next ones are written as differences, which are small.
#[derive(Debug, Default, Clone)]
pub(crate) struct LastSegment {
    seq: u32,
    ack: u32,
    value: u32,
    echo: u32,
}

fn put_number(out: &mut Vec<u8>, last: &mut u32, number: u32) {
    put(out, zigzag(i64::from(number.wrapping_sub(*last).cast_signed())));
    *last = number;
}

fn number(reader: &mut Reader<'_>, last: &mut u32) -> Parsed<u32> {
    let difference = i32::try_from(unzigzag(reader.varint()?)).map_err(|_| Malformed("an impossible number"))?;
    *last = last.wrapping_add_signed(difference);
    Ok(*last)
}

impl LastSegment {
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, arrival: &Arrival) {
        let Arrival { tuple: _, header, data, segment, ecn } = arrival;
        // The ports belong to the connection. The digest was verified before, and the connection
        // ignores it.
        let Header { source_port: _, destination_port: _, seq, ack, flags, window, urgent, options } = header;
        let Options { mss, window_scale, sack_permitted, timestamps, sack, md5: _, accecn } = options;
        put(out, u64::from(flags.0) | u64::from(bits_of(*ecn)) << ECN_SHIFT);
        let parts = [
            (mss.is_some(), part::MSS),
            (window_scale.is_some(), part::WINDOW_SCALE),
            (*sack_permitted, part::SACK_PERMITTED),
            (timestamps.is_some(), part::TIMESTAMPS),
            (!sack.is_empty(), part::SACK),
            (accecn.is_some(), part::ACCECN),
            (*segment != data.len(), part::JOINED),
            (*urgent != 0, part::URGENT),
        ];
        out.push(parts.into_iter().filter(|(is_there, _)| *is_there).fold(0, |bits, (_, bit)| bits | bit));
        put_number(out, &mut self.seq, seq.get());
        put_number(out, &mut self.ack, ack.get());
        put(out, (*window).into());
        put(out, data.len() as u64);
        if let Some(mss) = mss {
            put(out, (*mss).into());
        }
        out.extend(window_scale);
        if let Some(Timestamps { value, echo }) = timestamps {
            put_number(out, &mut self.value, *value);
            put_number(out, &mut self.echo, *echo);
        }
        if !sack.is_empty() {
            out.push(sack.len() as u8);
            let mut last = self.ack;
            for (start, end) in sack.iter() {
                put_number(out, &mut last, start.get());
                put_number(out, &mut last, end.get());
            }
        }
        if let Some(AccEcn { e0_bytes, ce_bytes, e1_bytes }) = accecn {
            let counters = [e0_bytes, ce_bytes, e1_bytes];
            out.push(counters.iter().enumerate().fold(0, |bits, (at, it)| bits | u8::from(it.is_some()) << at));
            counters.into_iter().flatten().for_each(|counter| put(out, (*counter).into()));
        }
        if *segment != data.len() {
            put(out, *segment as u64);
        }
        if *urgent != 0 {
            put(out, (*urgent).into());
        }
    }

    /// Reads a segment of this connection. Its data are replaced by zeros.
    pub(crate) fn read(&mut self, reader: &mut Reader<'_>, tuple: &Tuple) -> Parsed<Arrival> {
        let (first, parts) = (reader.varint()?, reader.u8()?);
        if first > FIRST_MAX {
            return Err(Malformed("unknown flags of a segment"));
        }
        let has = |part: u8| parts & part != 0;
        let (seq, ack) = (number(reader, &mut self.seq)?, number(reader, &mut self.ack)?);
        let (window, len) = (small(reader)?, size(reader)?);
        if len > DATA_MAX {
            return Err(Malformed("more data than a segment can have"));
        }
        let mss = if has(part::MSS) { Some(small(reader)?) } else { None };
        let window_scale = if has(part::WINDOW_SCALE) { Some(reader.u8()?) } else { None };
        let timestamps = if has(part::TIMESTAMPS) {
            Some(Timestamps { value: number(reader, &mut self.value)?, echo: number(reader, &mut self.echo)? })
        } else {
            None
        };
        let sack = if has(part::SACK) { blocks(reader, ack)? } else { SackBlocks::default() };
        let accecn = if has(part::ACCECN) { Some(counters(reader)?) } else { None };
        let segment = if has(part::JOINED) { size(reader)? } else { len };
        let urgent = if has(part::URGENT) { small(reader)? } else { 0 };
        let header = Header {
            source_port: tuple.remote.port(),
            destination_port: tuple.local.port(),
            seq: Seq32::new(seq),
            ack: Seq32::new(ack),
            flags: Flags((first & ((1 << ECN_SHIFT) - 1)) as u16),
            window,
            urgent,
            options: Options {
                mss,
                window_scale,
                sack_permitted: has(part::SACK_PERMITTED),
                timestamps,
                sack,
                md5: None,
                accecn,
            },
        };
        Ok(Arrival { tuple: *tuple, header, data: zeros::take(len), segment, ecn: ecn_of(first >> ECN_SHIFT) })
    }
}

fn blocks(reader: &mut Reader<'_>, ack: u32) -> Parsed<SackBlocks> {
    let (mut blocks, mut last) = (SackBlocks::default(), ack);
    for _ in 0..reader.u8()? {
        let (start, end) = (number(reader, &mut last)?, number(reader, &mut last)?);
        if !blocks.push(Seq32::new(start), Seq32::new(end)) {
            return Err(Malformed("more blocks than a segment can have"));
        }
    }
    Ok(blocks)
}

fn counters(reader: &mut Reader<'_>) -> Parsed<AccEcn> {
    let bits = reader.u8()?;
    let mut counter = |at: u8| {
        let counter = if bits >> at & 1 != 0 { Some(short(reader)?) } else { None };
        if counter > Some(COUNTER_MAX) { Err(Malformed("an impossible counter")) } else { Ok(counter) }
    };
    Ok(AccEcn { e0_bytes: counter(0)?, ce_bytes: counter(1)?, e1_bytes: counter(2)? })
}

fn small(reader: &mut Reader<'_>) -> Parsed<u16> {
    u16::try_from(reader.varint()?).map_err(|_| Malformed("a number above 65535"))
}

fn size(reader: &mut Reader<'_>) -> Parsed<usize> {
    Ok(usize::try_from(reader.varint()?).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::{collection::vec, option::of};

    fn options() -> impl Strategy<Value = Options> {
        let timestamps = of(any::<(u32, u32)>().prop_map(|(value, echo)| Timestamps { value, echo }));
        let counters = of((of(0..=COUNTER_MAX), of(0..=COUNTER_MAX), of(0..=COUNTER_MAX)))
            .prop_map(|it| it.map(|(e0_bytes, ce_bytes, e1_bytes)| AccEcn { e0_bytes, ce_bytes, e1_bytes }));
        let parts =
            (any::<Option<u16>>(), any::<Option<u8>>(), any::<bool>(), timestamps, vec(any::<(u32, u32)>(), 0..5));
        (parts, counters).prop_map(|((mss, window_scale, sack_permitted, timestamps, blocks), accecn)| {
            let mut sack = SackBlocks::default();
            for (start, end) in blocks {
                sack.push(Seq32::new(start), Seq32::new(end));
            }
            Options { mss, window_scale, sack_permitted, timestamps, sack, md5: None, accecn }
        })
    }

    proptest! {
        #[test]
        fn segments_come_back(
            all in vec((0..=0x1ff_u16, any::<(u32, u32, u16, u16)>(), options(), 0..3000_usize, of(1..3000_usize), 0..4_u64), 1..8),
        ) {
            let tuple = Tuple { local: ([10, 0, 0, 1], 1000).into(), remote: ([10, 0, 0, 2], 80).into() };
            let all: Vec<Arrival> = all.into_iter().map(|(flags, (seq, ack, window, urgent), options, len, joined, ecn)| {
                let header = Header {
                    source_port: 80, destination_port: 1000, seq: Seq32::new(seq), ack: Seq32::new(ack),
                    flags: Flags(flags), window, urgent, options,
                };
                Arrival { tuple, header, data: zeros::take(len), segment: joined.unwrap_or(len), ecn: ecn_of(ecn) }
            }).collect();
            let (mut out, mut last) = (Vec::new(), LastSegment::default());
            all.iter().for_each(|arrival| last.put(&mut out, arrival));
            let (mut reader, mut last) = (Reader::new(&out), LastSegment::default());
            for arrival in all {
                let read = last.read(&mut reader, &tuple).expect("what was written is valid");
                prop_assert_eq!((read.header, read.data.len(), read.segment, read.ecn),
                    (arrival.header, arrival.data.len(), arrival.segment, arrival.ecn));
            }
            prop_assert!(reader.is_empty());
        }
    }
}
