use std::collections::VecDeque;
use std::net::Ipv4Addr;

use super::*;

/// A device that sends datagrams until it is set to fail, and a record of the sent datagrams.
#[derive(Default)]
struct Device {
    segments: bool,
    /// Results of the next calls; `None`, and every call after them, succeeds.
    script: VecDeque<Option<Errno>>,
    wire: Vec<(Option<Ecn>, Vec<u8>)>,
    calls: usize,
}

impl RawSend for Device {
    fn send_raw(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.calls += 1;
        if let Some(Some(errno)) = self.script.pop_front() {
            return Err(errno.into());
        }
        if transmit.is_batch() && !self.segments {
            return Err(Errno::IO.into());
        }
        for datagram in transmit.contents.chunks(transmit.stride()) {
            self.wire.push((transmit.ecn, datagram.to_vec()));
        }
        Ok(())
    }
}

fn batch(contents: &[u8]) -> Transmit<'_> {
    Transmit {
        destination: (Ipv4Addr::LOCALHOST, 9).into(),
        source_ip: None,
        ecn: Some(Ecn::Ect0),
        contents,
        segment_size: Some(2),
    }
}

fn assert_carried(device: &Device, expected: &[&[u8]]) {
    let carried: Vec<&[u8]> = device.wire.iter().map(|(_, datagram)| &datagram[..]).collect();
    assert_eq!(carried, expected);
    assert!(device.wire.iter().all(|&(ecn, _)| ecn == Some(Ecn::Ect0)), "a mark was lost");
}

#[test]
fn without_segmentation_support_each_datagram_is_sent_once_and_offload_is_disabled() {
    let mut device = Device::default();
    let (mut segmentation, mut counters) = (Segmentation::new(64), SocketCounters::default());
    segmentation.send(&mut device, &mut counters, &batch(b"aabbc")).unwrap();
    assert_carried(&device, &[b"aa", b"bb", b"c"]);
    assert_eq!((device.calls, counters.gso_fallbacks, segmentation.segments_max()), (4, 1, 1));
    segmentation.send(&mut device, &mut counters, &batch(b"dde")).unwrap();
    assert_carried(&device, &[b"aa", b"bb", b"c", b"dd", b"e"]);
    assert_eq!((device.calls, counters.gso_fallbacks, counters.datagrams_sent), (6, 1, 5));
}

#[test]
fn segmentation_stays_enabled_if_the_first_datagram_fails_alone() {
    for (errno, too_large) in [(Errno::MSGSIZE, true), (Errno::INVAL, false)] {
        let mut device =
            Device { segments: true, script: [Some(Errno::INVAL), Some(errno)].into(), ..Device::default() };
        let (mut segmentation, mut counters) = (Segmentation::new(64), SocketCounters::default());
        let error = segmentation.send(&mut device, &mut counters, &batch(b"aabb")).unwrap_err();
        assert_eq!(matches!(error, SendError::TooLarge), too_large, "{error:?}");
        assert_eq!((segmentation.segments_max(), counters), (64, SocketCounters::default()));
        segmentation.send(&mut device, &mut counters, &batch(b"aabb")).unwrap();
        assert_eq!((counters.batches_sent, counters.datagrams_sent), (1, 2));
    }
}

#[test]
fn the_rest_of_a_split_batch_is_kept_and_sent_first() {
    for errno in [Errno::AGAIN, Errno::NOBUFS] {
        // Segmentation fails, the first datagram is sent, the second finds no space, nor does the
        // first flush, but one datagram at the second flush does.
        let script = [Some(Errno::IO), None, Some(errno), Some(errno), None, Some(errno)].into();
        let mut device = Device { script, ..Device::default() };
        let (mut segmentation, mut counters) = (Segmentation::new(64), SocketCounters::default());
        segmentation.send(&mut device, &mut counters, &batch(b"aabbcc")).unwrap();
        assert_carried(&device, &[b"aa"]);
        let refused = |result: Result<(), SendError>| {
            assert!(matches!(result, Err(SendError::WouldBlock | SendError::NoBuffers)), "{result:?}");
        };
        refused(segmentation.send(&mut device, &mut counters, &batch(b"dd")));
        refused(segmentation.flush(&mut device, &mut counters));
        assert_carried(&device, &[b"aa", b"bb"]);
        segmentation.send(&mut device, &mut counters, &batch(b"dd")).unwrap();
        assert_carried(&device, &[b"aa", b"bb", b"cc", b"dd"]);
        segmentation.flush(&mut device, &mut counters).unwrap();
        assert_eq!((device.wire.len(), counters.datagrams_sent), (4, 4));
    }
}

#[test]
fn a_rejected_batch_that_was_not_split_is_not_kept() {
    let mut device = Device { segments: true, script: [Some(Errno::AGAIN)].into(), ..Device::default() };
    let (mut segmentation, mut counters) = (Segmentation::new(64), SocketCounters::default());
    let result = segmentation.send(&mut device, &mut counters, &batch(b"aabb"));
    assert!(matches!(result, Err(SendError::WouldBlock)));
    segmentation.flush(&mut device, &mut counters).unwrap();
    assert_carried(&device, &[]);
}

#[test]
fn long_batches_are_sent_in_pieces() {
    let mut device = Device { segments: true, ..Device::default() };
    let (mut segmentation, mut counters) = (Segmentation::new(2), SocketCounters::default());
    segmentation.send(&mut device, &mut counters, &batch(b"aabbccdde")).unwrap();
    assert_carried(&device, &[b"aa", b"bb", b"cc", b"dd", b"e"]);
    assert_eq!((device.calls, counters.batches_sent, counters.datagrams_sent), (3, 3, 5));
}

#[test]
fn an_unsendable_rest_neither_blocks_nor_fails_later_sends() {
    let script = [Some(Errno::IO), None, Some(Errno::AGAIN), Some(Errno::NETUNREACH)].into();
    let mut device = Device { script, ..Device::default() };
    let (mut segmentation, mut counters) = (Segmentation::new(64), SocketCounters::default());
    segmentation.send(&mut device, &mut counters, &batch(b"aabb")).unwrap();
    segmentation.send(&mut device, &mut counters, &batch(b"cc")).unwrap();
    assert_carried(&device, &[b"aa", b"cc"]);
}

/// A device that refuses only batches, or also single datagrams above a size.
struct Filter {
    errno: Errno,
    bytes_max: usize,
    wire: Vec<Vec<u8>>,
}

impl RawSend for Filter {
    fn send_raw(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        if transmit.contents.len() > self.bytes_max {
            return Err(self.errno.into());
        }
        self.wire.extend(transmit.contents.chunks(transmit.stride()).map(<[u8]>::to_vec));
        Ok(())
    }
}

#[test]
fn whatever_the_error_for_a_batch_is_single_datagrams_are_tried() {
    use Errno as E;
    let errors = [
        E::PERM,
        E::ACCESS,
        E::MSGSIZE,
        E::IO,
        E::INVAL,
        E::NETUNREACH,
        E::HOSTUNREACH,
        E::NETDOWN,
        E::OPNOTSUPP,
        E::NOBUFS,
        E::NOMEM,
    ];
    for errno in errors {
        let mut device = Filter { errno, bytes_max: 2, wire: Vec::new() };
        let (mut segmentation, mut counters) = (Segmentation::new(64), SocketCounters::default());
        let mut calls = 0;
        while segmentation.send(&mut device, &mut counters, &batch(b"aabbc")).is_err() {
            calls += 1;
            assert!(calls <= BATCH_REFUSALS_MAX, "{errno}: never sent");
        }
        assert_eq!(device.wire, [&b"aa"[..], b"bb", b"c"], "{errno}: in order, each once");
        assert_eq!((segmentation.segments_max(), counters.gso_fallbacks), (1, 1), "{errno}");
        segmentation.send(&mut device, &mut counters, &batch(b"dd")).unwrap();
    }
}

#[test]
fn datagrams_that_never_find_buffers_end_in_an_error_that_is_not_temporary() {
    let mut device = Filter { errno: Errno::NOBUFS, bytes_max: 1, wire: Vec::new() };
    let (mut segmentation, mut counters) = (Segmentation::new(64), SocketCounters::default());
    for contents in [&b"aabb"[..], b"aa"] {
        let mut calls = 0;
        while !matches!(segmentation.send(&mut device, &mut counters, &batch(contents)), Err(SendError::Other(_))) {
            calls += 1;
            assert!(calls <= REFUSALS_MAX, "temporary for ever");
        }
        assert!(calls > REFUSALS_MAX / 2, "given up after {calls} calls");
    }
    assert_eq!(device.wire, Vec::<Vec<u8>>::new());
}

/// A filter that was full for one call, for instance, must not cost the socket its batches
/// permanently.
#[test]
fn batches_are_tried_again_unless_the_system_has_none() {
    for (errno, comes_back) in
        [(Errno::PERM, true), (Errno::NETUNREACH, true), (Errno::IO, false), (Errno::INVAL, false)]
    {
        let mut device = Device { segments: true, script: [Some(errno)].into(), ..Device::default() };
        let (mut segmentation, mut counters) = (Segmentation::new(64), SocketCounters::default());
        segmentation.send(&mut device, &mut counters, &batch(b"aabb")).unwrap();
        assert_eq!((segmentation.segments_max(), counters.gso_fallbacks), (1, 1), "{errno}");
        for _ in 0..SINGLES_MIN {
            segmentation.send(&mut device, &mut counters, &batch(b"aabb")).unwrap();
        }
        assert_eq!(segmentation.segments_max(), if comes_back { 64 } else { 1 }, "{errno}");
        assert_eq!(counters.batches_sent < counters.datagrams_sent, comes_back, "{errno}");
    }
}

#[test]
fn a_filter_that_stays_is_asked_ever_less_often() {
    let mut device = Filter { errno: Errno::PERM, bytes_max: 2, wire: Vec::new() };
    let (mut segmentation, mut counters) = (Segmentation::new(64), SocketCounters::default());
    let datagrams = 64 * SINGLES_MIN;
    for _ in 0..datagrams / 2 {
        segmentation.send(&mut device, &mut counters, &batch(b"aabb")).unwrap();
    }
    assert_eq!(device.wire.len() as u64, datagrams, "each datagram is sent once");
    // After 1024, 2048, ... datagrams: six attempts among 64 times 1024.
    assert!((6..=7).contains(&counters.gso_fallbacks), "{} refusals", counters.gso_fallbacks);
}
