//! [`Choice`]: the class of a stream, by the DSCP of its program's packets, within the share of urgent data.

use std::sync::{Mutex, MutexGuard, PoisonError};

use net::MonotonicClock;
use tunnel::inner::LOWER_EFFORT;
use tunnel::urgent::UrgentShare;
use units::{Duration, Instant};

use forwarding::carry::StreamClass;

/// So long the stream of a connection that exceeds the share of urgent data is sent as others are. What it has
/// written before is urgent with the rest, so it must not become urgent again with each small write.
const USUAL_TIME: Duration = Duration::from_secs(1);

/// Chooses the class of one stream.
#[derive(Default)]
pub(crate) struct Choice {
    /// Urgent data are not urgent until then, because there were too many.
    usual_until: Mutex<Instant>,
}

impl Choice {
    /// The class when `len` bytes come with this DSCP, which is urgent or not.
    pub(crate) fn next(&self, streams: &UrgentStreams, (dscp, is_urgent): (u8, bool), len: usize) -> StreamClass {
        self.next_at(streams.clock.now(), &mut lock(&streams.share), (dscp, is_urgent), len)
    }

    fn next_at(&self, now: Instant, share: &mut UrgentShare, (dscp, is_urgent): (u8, bool), len: usize) -> StreamClass {
        share.count(len);
        if dscp == LOWER_EFFORT {
            return StreamClass::Background;
        }
        let mut usual_until = lock(&self.usual_until);
        if !is_urgent || now < *usual_until {
            return StreamClass::Usual;
        }
        if share.admits(now, len) {
            return StreamClass::Urgent;
        }
        *usual_until = now + USUAL_TIME;
        StreamClass::Usual
    }
}

/// The share of urgent data in all data that go to a peer in streams.
#[derive(Debug)]
pub(crate) struct UrgentStreams {
    clock: MonotonicClock,
    share: Mutex<UrgentShare>,
}

impl Default for UrgentStreams {
    fn default() -> Self {
        Self { clock: MonotonicClock::start(), share: Mutex::default() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tunnel::UrgentKinds;

    use super::*;

    const EXPEDITED: u8 = 46;

    /// The classes of data of these lengths, one every so many milliseconds.
    fn classes(dscp: u8, lens: &[usize], every_ms: u64) -> Vec<StreamClass> {
        let (choice, mut share, mut now) = (Choice::default(), UrgentShare::new(), Instant::ZERO);
        let is_urgent = UrgentKinds::default().has_flow(dscp, [40_000, 80]);
        let next = |len: &usize| {
            now += Duration::from_millis(every_ms);
            choice.next_at(now, &mut share, (dscp, is_urgent), *len)
        };
        lens.iter().map(next).collect()
    }

    #[test]
    fn the_code_point_chooses_the_class() {
        for (dscp, class) in [
            (0, StreamClass::Usual),
            (34, StreamClass::Usual),
            // CS1 is no lower effort.
            (8, StreamClass::Usual),
            (EXPEDITED, StreamClass::Urgent),
            (44, StreamClass::Urgent),
            (LOWER_EFFORT, StreamClass::Background),
        ] {
            assert_eq!(classes(dscp, &[200; 50], 20), vec![class; 50], "{dscp}");
        }
    }

    #[test]
    fn bulk_data_that_claim_to_be_urgent_are_sent_as_others_for_a_second() {
        assert_eq!(classes(EXPEDITED, &[60_000; 20], 1), [StreamClass::Usual; 20]);
        // Small writes that are too many: a burst is urgent, and then none for a second.
        let many = classes(EXPEDITED, &[1000; 3000], 1);
        let urgent = many.iter().filter(|class| **class == StreamClass::Urgent).count();
        assert!((10..200).contains(&urgent), "{urgent} of 3000 KB");
        let first_usual = many.iter().position(|class| *class == StreamClass::Usual).expect("too many");
        assert!(many[first_usual..first_usual + 1000].iter().all(|class| *class == StreamClass::Usual));
        assert!(many[first_usual + 1000..].contains(&StreamClass::Urgent), "and then it is tried again");
    }
}
