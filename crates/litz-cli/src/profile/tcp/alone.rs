//! Parts of the work on a segment, measured alone, on packets in the caches.

use bytes::Bytes;
use net::MonotonicClock;
use tcp::SuperPacket;
use tcp_driver::Received;
use wire::checksum;
use wire::icmp::Message;
use wire::ip::{Header, Packet, Protocol};

use super::super::fit::median;
use super::serial::Pair;

/// Samples of each part, and calls in a sample. The median ignores interruptions.
const SAMPLES: usize = 101;
const CALLS: usize = 64;

/// Bytes of data that `ping` sends.
const ECHO_LEN: usize = 56;

/// Bytes of the application in a piece, as in the runs.
const CHUNK_LEN: usize = 64 << 10;

/// Nanoseconds per segment, or per call.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Alone {
    /// Checking the IP header and finding what the packet holds.
    pub(super) ip_demux: f64,
    /// The sum over a segment.
    pub(super) checksum: f64,
    /// Copying the data of a segment.
    pub(super) copy: f64,
    /// Writing an IP header.
    pub(super) ip_header: f64,
    /// Answering an echo request.
    pub(super) icmp: f64,
    /// From the expiry of the timer of delayed acknowledgements to the packet.
    pub(super) delayed_acknowledgement: f64,
}

impl Alone {
    /// Measures all of them, for segments of `payload` bytes.
    ///
    /// # Errors
    /// A message for the user, if a step does not do its work.
    pub(super) fn measure(payload: usize) -> Result<Self, String> {
        let clock = MonotonicClock::start();
        let mut pair = Pair::new(payload);
        let packet = pair.data_packet(payload)?;
        let parsed = Packet::parse(&packet).map_err(|error| error.to_string())?;
        let pseudo =
            checksum::pseudo_header(parsed.source, parsed.destination, Protocol::TCP, parsed.payload.len() as u32);
        if !wire::tcp::is_checksum_valid(parsed.payload, pseudo) {
            return Err("a packet in memory has a wrong checksum".to_owned());
        }
        let header = ip_header(&parsed, Protocol::TCP);
        let (chunk, mut out) = (vec![7; CHUNK_LEN], Vec::new());
        let mut at = 0;
        let echo = echo_request(&parsed);
        let mut answer = SuperPacket::default();
        if !tcp::icmp::answer(&echo, &mut answer) {
            return Err("an echo request is not answered".to_owned());
        }
        let mut delayed = (0..SAMPLES).map(|_| pair.delayed_acknowledgement(payload)).collect::<Result<Vec<_>, _>>()?;
        delayed.sort();
        Ok(Self {
            ip_demux: demux_ns(&clock, &packet),
            checksum: call_ns(&clock, || wire::tcp::is_checksum_valid(std::hint::black_box(parsed.payload), pseudo)),
            copy: call_ns(&clock, || {
                out.clear();
                out.extend_from_slice(std::hint::black_box(&chunk[at..at + payload]));
                at = (at + payload) % (CHUNK_LEN - payload);
                out.len()
            }),
            ip_header: {
                let mut out = Vec::with_capacity(CALLS * 40);
                call_ns(&clock, || {
                    if out.len() > CALLS * 20 {
                        out.clear();
                    }
                    std::hint::black_box(&header).emit(payload, &mut out);
                    out.len()
                })
            },
            icmp: call_ns(&clock, || tcp::icmp::answer(std::hint::black_box(&echo), &mut answer)),
            delayed_acknowledgement: delayed[SAMPLES / 2].as_nanos() as f64,
        })
    }
}

/// Nanoseconds of a call of `work`.
fn call_ns<T>(clock: &MonotonicClock, mut work: impl FnMut() -> T) -> f64 {
    let mut sample = || {
        let begin = clock.now();
        for _ in 0..CALLS {
            std::hint::black_box(work());
        }
        clock.now().saturating_since(begin).as_nanos() as f64 / CALLS as f64
    };
    median(&(0..SAMPLES).map(|_| sample()).collect::<Vec<_>>())
}

/// Packets are taken as a device gives them: by value.
fn demux_ns(clock: &MonotonicClock, packet: &Bytes) -> f64 {
    let sample = || {
        let packets = vec![packet.clone(); CALLS];
        let mut taken = Vec::with_capacity(CALLS);
        let begin = clock.now();
        taken.extend(packets.into_iter().map(|packet| Received::new(packet, None, false)));
        let spent = clock.now().saturating_since(begin);
        std::hint::black_box(taken);
        spent.as_nanos() as f64 / CALLS as f64
    };
    median(&(0..SAMPLES).map(|_| sample()).collect::<Vec<_>>())
}

fn ip_header(like: &Packet<'_>, protocol: Protocol) -> Header {
    Header {
        source: like.source,
        destination: like.destination,
        protocol,
        hop_limit: 64,
        dscp: 0,
        ecn: None,
        id: 0,
        may_fragment: false,
    }
}

fn echo_request(like: &Packet<'_>) -> Vec<u8> {
    let request = Message::EchoRequest { id: 1, seq: 1, data: &[7; ECHO_LEN] };
    let mut bytes = Vec::new();
    ip_header(like, Protocol::ICMP).emit(request.len(false), &mut bytes);
    request.emit(like.source, like.destination, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_takes_time_and_work_on_bytes_grows_with_them() {
        let (small, large) = (Alone::measure(512).unwrap(), Alone::measure(8192).unwrap());
        for alone in [small, large] {
            let parts = [
                alone.ip_demux,
                alone.checksum,
                alone.copy,
                alone.ip_header,
                alone.icmp,
                alone.delayed_acknowledgement,
            ];
            assert!(parts.iter().all(|ns| *ns > 0.0 && *ns < 100_000.0), "{alone:?}");
        }
        assert!(large.checksum > small.checksum, "{small:?} {large:?}");
    }
}
