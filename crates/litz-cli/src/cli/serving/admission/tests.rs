use super::*;

/// Visitors, with a clock that the test sets.
struct Fixture {
    visitors: Visitors,
    now: Instant,
}

impl Fixture {
    fn new(visitors: Visitors) -> Self {
        Self { visitors, now: Instant::ZERO }
    }

    fn accept(&mut self, address: &str, key: u8, is_known: bool) -> (VisitorId, Option<VisitorId>) {
        let address = address.parse().unwrap();
        self.visitors.on_accepted(self.now, address, PublicKey::from_bytes([key; 32]), is_known)
    }

    fn stranger(&mut self, address: &str) -> (VisitorId, Option<VisitorId>) {
        self.accept(address, 200, false)
    }

    /// A sender with this key.
    fn sender(&mut self, key: u8) -> (VisitorId, Result<(), NoPlace>) {
        let (id, displaced) = self.accept("192.0.2.1", key, true);
        assert_eq!(displaced, None);
        (id, self.visitors.on_proven(id))
    }
}

/// The n-th address of different sources.
fn source(number: usize) -> String {
    format!("198.51.100.{number}")
}

#[test]
fn a_newcomer_displaces_the_oldest_stranger_when_their_places_are_full() {
    let mut fixture = Fixture::new(Visitors::of_ticket(Places::RECEIVER));
    let ids: Vec<_> = (0..STRANGERS_MAX).map(|number| fixture.stranger(&source(number)).0).collect();
    let (_, displaced) = fixture.stranger("203.0.113.1");
    assert_eq!(displaced, Some(ids[0]));
    assert_eq!(fixture.visitors.on_proven(ids[0]), Err(NoPlace::Closed), "its proof comes too late");
    let (_, displaced) = fixture.stranger("203.0.113.2");
    assert_eq!(displaced, Some(ids[1]), "a closed visitor is not displaced again");
}

#[test]
fn a_source_at_its_limit_displaces_only_its_own_visitors() {
    for [first, same, other] in [
        ["192.0.2.1", "192.0.2.1", "192.0.2.2"],
        ["2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "2001:db8:0:2::1"],
        ["::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.2"],
    ] {
        let mut fixture = Fixture::new(Visitors::of_ticket(Places::RECEIVER));
        assert_eq!(fixture.stranger(other).1, None);
        let oldest = fixture.stranger(first).0;
        for _ in 1..STRANGERS_PER_SOURCE_MAX {
            assert_eq!(fixture.stranger(same).1, None);
        }
        assert_eq!(fixture.stranger(same).1, Some(oldest), "not the visitor from {other}, which is older");
        assert_eq!(fixture.stranger(other).1, None);
    }
}

#[test]
fn strangers_take_no_place_of_a_known_key() {
    let mut fixture = Fixture::new(Visitors::of_ticket(Places::RECEIVER));
    let (known, _) = fixture.accept("192.0.2.1", 1, true);
    let mut closed = 0;
    for number in 0..1000 {
        let (_, displaced) = fixture.stranger(&source(number % 256));
        assert_ne!(displaced, Some(known));
        if let Some(displaced) = displaced {
            closed += 1;
            fixture.visitors.on_ended(displaced);
        }
    }
    assert_eq!(closed, 1000 - STRANGERS_MAX);
    assert_eq!(fixture.visitors.on_proven(known), Ok(()));
    assert_eq!(fixture.visitors.senders(), 1);
}

#[test]
fn a_known_key_at_its_limit_displaces_its_own_oldest_visitor() {
    let mut fixture = Fixture::new(Visitors::of_keys(Places::RECEIVER));
    let (other, _) = fixture.accept("192.0.2.1", 9, true);
    let oldest = fixture.accept("192.0.2.1", 1, true).0;
    for _ in 1..KNOWN_PER_KEY_MAX {
        assert_eq!(fixture.accept("192.0.2.1", 1, true).1, None);
    }
    assert_eq!(fixture.accept("192.0.2.2", 1, true).1, Some(oldest));
    // Many keys together fill all places of known visitors.
    let mut displaced = Vec::new();
    for key in 10..10 + KNOWN_MAX as u8 {
        displaced.extend(fixture.accept("192.0.2.1", key, true).1);
    }
    assert_eq!(displaced[0], other, "the oldest of all");
}

#[test]
fn a_visitor_without_a_hello_is_closed_at_its_deadline() {
    let mut fixture = Fixture::new(Visitors::of_ticket(Places::RECEIVER));
    let (silent, _) = fixture.stranger("192.0.2.1");
    let (known, _) = fixture.accept("192.0.2.1", 1, true);
    let (proven, _) = fixture.stranger("192.0.2.2");
    assert_eq!(fixture.visitors.on_proven(proven), Ok(()));
    fixture.now = Instant::ZERO + Duration::from_secs(1);
    let (later, _) = fixture.stranger("192.0.2.1");
    fixture.now = Instant::ZERO + HELLO_TIMEOUT;
    assert_eq!(fixture.visitors.poll_overdue(fixture.now), [silent, known]);
    assert!(fixture.visitors.poll_overdue(fixture.now).is_empty(), "each once");
    fixture.now += Duration::from_secs(1);
    assert_eq!(fixture.visitors.poll_overdue(fixture.now), [later]);
    fixture.now += Duration::from_secs(3600);
    assert!(fixture.visitors.poll_overdue(fixture.now).is_empty(), "a sender may stay");
}

#[test]
fn a_listed_key_leaves_places_to_other_keys() {
    let mut fixture = Fixture::new(Visitors::of_keys(Places::RECEIVER));
    for _ in 0..Places::RECEIVER.per_key {
        assert_eq!(fixture.sender(1).1, Ok(()));
    }
    assert_eq!(fixture.sender(1).1, Err(NoPlace::Busy), "its fair share");
    let shared = Places::RECEIVER.count - Places::RECEIVER.kept_for_new_keys;
    for key in (2..).take((shared - Places::RECEIVER.per_key) / 2) {
        assert_eq!([fixture.sender(key).1, fixture.sender(key).1], [Ok(()); 2]);
    }
    assert_eq!(fixture.visitors.senders(), shared);
    assert_eq!(fixture.sender(2).1, Err(NoPlace::Busy), "the other places are for keys without a transfer");
    let mut last = None;
    for key in (100..).take(Places::RECEIVER.kept_for_new_keys) {
        let (id, result) = fixture.sender(key);
        assert_eq!(result, Ok(()));
        last = Some(id);
    }
    assert_eq!(fixture.sender(150).1, Err(NoPlace::Busy), "all places are taken");
    fixture.visitors.on_ended(last.unwrap());
    assert_eq!(fixture.sender(150).1, Ok(()));
}

#[test]
fn the_sender_of_a_ticket_may_reconnect_before_its_earlier_connections_end() {
    let mut fixture = Fixture::new(Visitors::of_ticket(Places::RECEIVER));
    for _ in 0..Places::RECEIVER.count {
        assert_eq!(fixture.sender(1).1, Ok(()));
    }
    assert_eq!(fixture.sender(1).1, Err(NoPlace::Busy));
}

#[test]
fn a_key_that_lost_its_right_is_closed_and_others_stay() {
    let mut fixture = Fixture::new(Visitors::of_keys(Places::RECEIVER));
    let (sender, _) = fixture.sender(1);
    let (known, _) = fixture.accept("192.0.2.1", 1, true);
    let (other, _) = fixture.sender(2);
    let (stranger, _) = fixture.stranger("192.0.2.1");
    let removed = PublicKey::from_bytes([1; 32]);
    assert_eq!(fixture.visitors.on_keys_changed(|key| *key != removed), [sender, known]);
    assert_eq!(fixture.visitors.on_proven(known), Err(NoPlace::Closed));
    assert_eq!(fixture.visitors.on_end(), [stranger], "senders end by themselves");
    assert_eq!(fixture.visitors.on_proven(other), Ok(()));
}

#[test]
fn visitors_are_bounded_until_their_threads_end() {
    let mut fixture = Fixture::new(Visitors::of_ticket(Places::RECEIVER));
    let mut displaced = Vec::new();
    while fixture.visitors.has_space() {
        displaced.extend(fixture.stranger(&source(displaced.len())).1);
    }
    assert_eq!(displaced.len(), fixture.visitors.count_max() - STRANGERS_MAX);
    fixture.visitors.on_ended(displaced[0]);
    assert!(fixture.visitors.has_space());
    assert!(!fixture.visitors.is_empty());
}
