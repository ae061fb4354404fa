use super::*;

fn receive(acks: &mut Acks, number: u64) -> bool {
    acks.on_packets(Instant::ZERO, Space::Data, PathId::ZERO, number, 1, true)
}

/// An acknowledgement of everything leaves.
fn acknowledge(acks: &mut Acks, path: PathId) {
    let eliciting = acks.snapshot.get(Space::Data, path).eliciting;
    acks.on_ack_sent(Space::Data, path, eliciting);
}

#[test]
fn every_second_packet_is_acknowledged_at_once_and_a_lone_one_within_the_delay() {
    let mut acks = Acks::new(false);
    assert!(receive(&mut acks, 0));
    assert!(!acks.snapshot.get(Space::Data, PathId::ZERO).is_due());
    assert_eq!(acks.timeout(), Some(Instant::ZERO + MAX_ACK_DELAY));
    assert!(receive(&mut acks, 1));
    assert!(acks.snapshot.get(Space::Data, PathId::ZERO).is_due());
}

#[test]
fn the_peer_may_ask_for_fewer_acknowledgements_and_for_one_at_once() {
    let (mut acks, delay) = (Acks::new(false), Duration::from_millis(5));
    let due = |acks: &Acks| acks.snapshot.get(Space::Data, PathId::ZERO).is_due();
    acks.on_frequency(PathId::ZERO, 3, 10, delay, 0).unwrap();
    // Outdated, so ignored.
    acks.on_frequency(PathId::ZERO, 2, 0, delay, 0).unwrap();
    receive(&mut acks, 0);
    assert_eq!(acks.timeout(), Some(Instant::ZERO + delay));
    // A gap makes nothing due now.
    (2..11).for_each(|number| assert!(receive(&mut acks, number) && !due(&acks)));
    receive(&mut acks, 11);
    assert!(due(&acks));
    acknowledge(&mut acks, PathId::ZERO);
    receive(&mut acks, 12);
    assert!(!due(&acks));
    acks.ask_at_once(PathId::ZERO);
    assert!(due(&acks));
    assert!(acks.on_frequency(PathId::ZERO, 4, 10, MIN_ACK_DELAY - Duration::from_nanos(1), 0).is_err());
}

#[test]
fn gaps_and_handshake_packets_are_acknowledged_at_once() {
    let mut acks = Acks::new(false);
    receive(&mut acks, 0);
    acknowledge(&mut acks, PathId::ZERO);
    receive(&mut acks, 2);
    assert!(acks.snapshot.get(Space::Data, PathId::ZERO).is_due());
    acks.on_packets(Instant::ZERO, Space::Initial, PathId::ZERO, 0, 1, true);
    assert!(acks.snapshot.get(Space::Initial, PathId::ZERO).is_due());
}

#[test]
fn duplicates_are_recognised_even_after_their_range_was_forgotten() {
    let mut acks = Acks::new(false);
    for number in 0..10 {
        assert!(receive(&mut acks, number));
        assert!(!receive(&mut acks, number));
    }
    acks.raise_floor(Space::Data, PathId::ZERO, 5);
    assert!(!receive(&mut acks, 3));
    assert_eq!(acks.snapshot.get(Space::Data, PathId::ZERO).ranges.first(), Some(6..10));
}

#[test]
fn ranges_are_bounded() {
    let mut acks = Acks::new(false);
    for number in 0..10_000 {
        assert!(receive(&mut acks, number * 2));
    }
    assert_eq!(acks.snapshot.get(Space::Data, PathId::ZERO).ranges.range_count(), RANGES_MAX);
    assert!(!receive(&mut acks, 1), "a number below the floor may have been seen");
}

const ONE: PathId = PathId(1);

fn receive_on(acks: &mut Acks, at_ms: u64, path: PathId, number: u64) {
    assert!(acks.on_packets(Instant::ZERO + Duration::from_millis(at_ms), Space::Data, path, number, 1, true));
}

fn due_of(acks: &Acks) -> [bool; 2] {
    [PathId::ZERO, ONE].map(|path| acks.snapshot.get(Space::Data, path).is_due())
}

#[test]
fn one_decision_for_all_paths_counts_their_packets_together() {
    for (is_central, expected) in [(true, [true, true]), (false, [false, false])] {
        let mut acks = Acks::new(is_central);
        acks.on_frequency(PathId::ZERO, 0, 3, Duration::from_millis(5), 1).unwrap();
        for number in 0..2 {
            [PathId::ZERO, ONE].into_iter().for_each(|path| receive_on(&mut acks, 0, path, number));
        }
        assert_eq!(due_of(&acks), expected, "central: {is_central}");
    }
}

#[test]
fn one_decision_for_all_paths_has_one_delay_which_begins_with_the_oldest_packet() {
    let mut acks = Acks::new(true);
    receive_on(&mut acks, 1, ONE, 0);
    acks.on_frequency(PathId::ZERO, 0, 10, Duration::from_millis(5), 1).unwrap();
    assert_eq!(due_of(&acks), [false, true], "a stricter rule holds for what waits, too");
    acknowledge(&mut acks, ONE);
    assert_eq!(acks.timeout(), None);
    receive_on(&mut acks, 2, ONE, 1);
    receive_on(&mut acks, 4, PathId::ZERO, 0);
    let at = Instant::ZERO + Duration::from_millis(7);
    assert_eq!(acks.timeout(), Some(at));
    acks.on_timeout(at);
    assert_eq!(due_of(&acks), [true, true]);
    // An acknowledgement that did not fit the packet stays due.
    acknowledge(&mut acks, PathId::ZERO);
    assert_eq!(due_of(&acks), [false, true]);
    acknowledge(&mut acks, ONE);
    assert_eq!((due_of(&acks), acks.timeout()), ([false, false], None));
}

#[test]
fn a_gap_on_one_path_makes_what_waits_of_all_paths_due() {
    let mut acks = Acks::new(true);
    acks.on_frequency(PathId::ZERO, 0, 10, Duration::from_millis(5), 1).unwrap();
    receive_on(&mut acks, 0, PathId::ZERO, 0);
    receive_on(&mut acks, 0, ONE, 0);
    assert_eq!(due_of(&acks), [false, false]);
    receive_on(&mut acks, 0, ONE, 2);
    assert_eq!(due_of(&acks), [true, true]);
}

#[test]
fn removing_a_path_removes_its_packets_from_the_decision_for_all_paths() {
    let mut acks = Acks::new(true);
    acks.on_frequency(PathId::ZERO, 0, 10, Duration::from_millis(5), 1).unwrap();
    receive_on(&mut acks, 0, ONE, 0);
    acks.forget_path(ONE);
    acks.on_timeout(Instant::ZERO + Duration::from_millis(5));
    assert_eq!((due_of(&acks), acks.timeout()), ([false, false], None));
}
