//! Authentication of both ends; neither reveals anything before it.

use quic_endpoint::identity::AllowList;

use super::*;
use crate::store::TicketStore;

const NOW: u64 = 1_800_000_000;

struct Tickets {
    fixture: Fixture,
    store: TicketStore,
    secret: Secret,
    _state: tempfile::TempDir,
}

impl Tickets {
    fn new() -> Self {
        let fixture = Fixture::new();
        fixture.write("file", 1, 300_000);
        let state = tempfile::tempdir().unwrap();
        let store = TicketStore::open(state.path()).unwrap();
        let issued = store.issue(NOW, &fixture.top.path().join("in"), 4433, NOW + 60).unwrap();
        Self { fixture, store, secret: issued.secret, _state: state }
    }

    fn attempt(
        &self,
        credential: &Credential,
        authoriser: &mut dyn Authoriser,
        cut: Option<u64>,
    ) -> (Result<Summary, TransferError>, Result<Summary, TransferError>) {
        let ((send_link, send_control), (receive_link, receive_control)) = pair();
        if let Some(cut) = cut {
            send_link.faults().bytes_left.store(cut, Ordering::SeqCst);
        }
        let context = self.fixture.context();
        let directory = self.fixture.top.path().join("in");
        let source = Source::scan(&[self.fixture.source("file")], &CancelToken::new()).unwrap();
        let silent = |_: TransferEvent<'_>| {};
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let options = &self.fixture.receive;
                receive::run(&receive_link, receive_control, &context, &directory, options, authoriser, &silent)
            });
            let sent = send::run(&send_link, send_control, &context, credential, &source, &self.fixture.send, &silent);
            (sent, receiving.join().unwrap())
        })
    }

    fn with_ticket(
        &self,
        now: u64,
        cut: Option<u64>,
    ) -> (Result<Summary, TransferError>, Result<Summary, TransferError>) {
        let mut authoriser = TicketAuthoriser::new(self.store.clone(), self.fixture.top.path().join("in"), now);
        self.attempt(&Credential::Ticket(self.secret.clone()), &mut authoriser, cut)
    }
}

#[test]
fn a_ticket_is_good_until_its_transfer_is_complete() {
    let tickets = Tickets::new();
    // On a busy machine a receiver may have verified nothing when the link breaks; hardly twelve
    // times in a row.
    for _ in 0..12 {
        let (sent, received) = tickets.with_ticket(NOW, Some(8_000));
        assert!(sent.is_err() && received.is_err(), "interrupted");
    }
    let (sent, _) = tickets.with_ticket(NOW + 59, None);
    let sent = sent.unwrap();
    assert!(sent.bytes_resumed > 0 && sent.is_complete());
    let (sent, received) = tickets.with_ticket(NOW, None);
    assert!(matches!(sent, Err(TransferError::Refused(Refusal::Completed))), "{sent:?}");
    assert!(matches!(received, Err(TransferError::Refused(Refusal::Completed))), "{received:?}");
}

#[test]
fn refusals_reach_the_sender_with_their_reason() {
    let mut tickets = Tickets::new();
    assert!(matches!(tickets.with_ticket(NOW + 60, None).0, Err(TransferError::Refused(Refusal::Expired))));
    let (sent, _) = tickets.with_ticket(NOW, Some(15_000));
    assert!(sent.is_err());
    tickets.fixture.sender = 9;
    let (sent, _) = tickets.with_ticket(NOW, None);
    assert!(matches!(sent, Err(TransferError::Refused(Refusal::BoundToAnotherKey))), "{sent:?}");
    tickets.secret = Secret::from_bytes([0; 16]);
    let (sent, _) = tickets.with_ticket(NOW, None);
    assert!(matches!(sent, Err(TransferError::Refused(Refusal::UnknownOrWrongProof))), "{sent:?}");
    let mut authoriser = TicketAuthoriser::new(tickets.store.clone(), tickets.fixture.top.path().join("in"), NOW);
    let (sent, _) = tickets.attempt(&Credential::Key, &mut authoriser, None);
    assert!(matches!(sent, Err(TransferError::Refused(Refusal::UnknownOrWrongProof))), "no ticket: {sent:?}");
}

#[test]
fn a_listed_key_needs_no_ticket_and_an_unlisted_one_is_refused() {
    let tickets = Tickets::new();
    let listed = tickets.fixture.context().sender().fingerprint();
    let (sent, received) = tickets.attempt(&Credential::Key, &mut KeyAuthoriser::new(AllowList::of([listed])), None);
    assert!(sent.unwrap().is_complete() && received.unwrap().is_complete());
    let other = KeyPair::generate().unwrap().public().fingerprint();
    let (sent, _) = tickets.attempt(&Credential::Key, &mut KeyAuthoriser::new(AllowList::of([other])), None);
    assert!(matches!(sent, Err(TransferError::Refused(Refusal::KeyNotAllowed))), "{sent:?}");
}

#[test]
fn a_transfer_that_is_refused_as_a_whole_leaves_the_ticket_to_another_sender() {
    let mut tickets = Tickets::new();
    tickets.fixture.receive.bytes_max = Some(299_999);
    let (sent, received) = tickets.with_ticket(NOW, None);
    assert!(sent.is_err() && matches!(received, Err(TransferError::TooLarge(300_000, 299_999))), "{received:?}");
    tickets.fixture.sender = 9;
    tickets.fixture.receive.bytes_max = None;
    assert!(tickets.with_ticket(NOW, None).0.unwrap().is_complete());
}

#[test]
fn a_refusal_does_not_release_a_ticket_that_was_bound_before() {
    let mut tickets = Tickets::new();
    let (sent, _) = tickets.with_ticket(NOW, Some(15_000));
    assert!(sent.is_err(), "interrupted");
    tickets.fixture.receive.bytes_max = Some(1);
    let (_, received) = tickets.with_ticket(NOW, None);
    assert!(matches!(received, Err(TransferError::TooLarge(..))), "{received:?}");
    tickets.fixture.sender = 9;
    let (sent, _) = tickets.with_ticket(NOW, None);
    assert!(matches!(sent, Err(TransferError::Refused(Refusal::BoundToAnotherKey))), "{sent:?}");
}

/// Accepts every sender, with a proof of another secret.
struct Imposter;

impl Authoriser for Imposter {
    fn authorise(&mut self, context: &ProofContext, _: Option<&Proof>) -> Result<Option<Proof>, Refusal> {
        Ok(Some(context.prove(&Secret::from_bytes([0; 16]), crate::Role::Receiver)))
    }

    fn complete(&mut self) -> Result<(), String> {
        panic!("nothing was sent")
    }
}

#[test]
fn a_receiver_without_the_secret_gets_no_file_names() {
    let tickets = Tickets::new();
    let (sent, received) = tickets.attempt(&Credential::Ticket(tickets.secret.clone()), &mut Imposter, None);
    assert!(matches!(sent, Err(TransferError::ReceiverUnproven)), "{sent:?}");
    assert!(matches!(received, Err(TransferError::Peer(_))), "{received:?}");
    // A receiver that accepts by key answers a ticket without a proof.
    let listed = tickets.fixture.context().sender().fingerprint();
    let mut keys = KeyAuthoriser::new(AllowList::of([listed]));
    let (sent, _) = tickets.attempt(&Credential::Ticket(tickets.secret.clone()), &mut keys, None);
    assert!(matches!(sent, Err(TransferError::KeysOnly)), "{sent:?}");
    assert_eq!(fs::read_dir(tickets.fixture.top.path().join("in")).unwrap().count(), 0);
}

/// Records the run id, and refuses.
#[derive(Default)]
struct Busy(Option<RunId>);

impl Authoriser for Busy {
    fn on_run_id(&mut self, run: Option<RunId>) {
        self.0 = run;
    }

    fn authorise(&mut self, _: &ProofContext, _: Option<&Proof>) -> Result<Option<Proof>, Refusal> {
        Err(Refusal::Running)
    }

    fn complete(&mut self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn the_run_id_reaches_the_authoriser_and_its_refusal_the_sender() {
    let mut tickets = Tickets::new();
    for run in [Some(RunId::generate().unwrap()), None] {
        tickets.fixture.send.run_id = run;
        let mut busy = Busy::default();
        let (sent, _) = tickets.attempt(&Credential::Key, &mut busy, None);
        assert!(matches!(sent, Err(TransferError::Refused(Refusal::Running))), "{sent:?}");
        assert_eq!(busy.0, run);
    }
}

#[test]
fn the_files_are_listed_once_the_ticket_is_bound_and_never_for_a_refused_sender() {
    let tickets = Tickets::new();
    let directory = tickets.fixture.top.path().join("in");
    let context = tickets.fixture.context();
    let source = Source::scan(&[tickets.fixture.source("file")], &CancelToken::new()).unwrap();
    for (secret, is_known) in [(Secret::from_bytes([0; 16]), false), (tickets.secret.clone(), true)] {
        let ((send_link, send_control), (receive_link, receive_control)) = pair();
        let is_listed = std::cell::Cell::new(false);
        let list = || {
            let [ticket] = &tickets.store.usable(NOW, &directory).unwrap()[..] else { panic!("one ticket") };
            assert_eq!(ticket.bound, Some(context.sender()), "another host cannot use the ticket any more");
            is_listed.set(true);
            Ok(&source)
        };
        let sent = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let mut authoriser = TicketAuthoriser::new(tickets.store.clone(), directory.clone(), NOW);
                let options = &tickets.fixture.receive;
                receive::run(&receive_link, receive_control, &context, &directory, options, &mut authoriser, &())
            });
            let (credential, options) = (Credential::Ticket(secret), &tickets.fixture.send);
            let sent = send::run_deferred(&send_link, send_control, &context, &credential, &list, options, &());
            assert_eq!(receiving.join().unwrap().is_ok(), is_known);
            sent
        });
        assert_eq!((sent.is_ok(), is_listed.get()), (is_known, is_known));
    }
}
