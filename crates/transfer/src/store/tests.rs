use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use super::*;
use quic_endpoint::identity::Fingerprint;

const NOW: u64 = 1_800_000_000;
const LATER: u64 = NOW + 3600;

struct Fixture {
    state: tempfile::TempDir,
    store: TicketStore,
}

impl Fixture {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let store = TicketStore::open(&state.path().join("litz")).unwrap();
        Self { state, store }
    }

    /// Reopens the store like a restarted receiver.
    fn restart(&mut self) {
        self.store = TicketStore::open(&self.state.path().join("litz")).unwrap();
    }

    fn issue(&self) -> Issued {
        self.store.issue(NOW, Path::new("/in"), 4433, LATER).unwrap()
    }

    fn attempt(&self, now: u64, secret: &Secret, sender: u8) -> Result<Accepted, Refusal> {
        let context = context(sender);
        self.store.decide(now, Path::new("/in"), &context, &context.prove(secret, Role::Sender))
    }
}

fn context(sender: u8) -> ProofContext {
    ProofContext::new(|_, _| [9; 32], PublicKey::from_bytes([sender; 32]), Fingerprint::from_bytes([1; 32]))
}

#[test]
fn a_ticket_serves_only_its_first_sender_also_after_a_restart() {
    let mut fixture = Fixture::new();
    let ticket = fixture.issue();
    let first = fixture.attempt(NOW, &ticket.secret, 1).unwrap();
    assert!(first.first_use);
    assert!(context(1).verify(&ticket.secret, Role::Receiver, &first.proof), "the receiver proves back");
    fixture.restart();
    let again = fixture.attempt(LATER - 1, &ticket.secret, 1).unwrap();
    assert!(!again.first_use && again.id == ticket.id);
    assert_eq!(fixture.attempt(NOW, &ticket.secret, 2).unwrap_err(), Refusal::BoundToAnotherKey);
    fixture.restart();
    assert_eq!(fixture.attempt(NOW, &ticket.secret, 2).unwrap_err(), Refusal::BoundToAnotherKey);
}

#[test]
fn a_completed_ticket_is_spent_across_restarts() {
    let mut fixture = Fixture::new();
    let ticket = fixture.issue();
    let accepted = fixture.attempt(NOW, &ticket.secret, 1).unwrap();
    fixture.store.complete(&accepted.id).unwrap();
    fixture.restart();
    assert_eq!(fixture.attempt(NOW, &ticket.secret, 1).unwrap_err(), Refusal::Completed);
    assert_eq!(fixture.attempt(NOW, &ticket.secret, 2).unwrap_err(), Refusal::BoundToAnotherKey);
    assert!(fixture.store.usable(NOW, Path::new("/in")).unwrap().is_empty());
}

#[test]
fn expiry_holds_for_bound_and_unbound_tickets_and_binds_no_sender() {
    let fixture = Fixture::new();
    let ticket = fixture.issue();
    assert_eq!(fixture.attempt(LATER, &ticket.secret, 1).unwrap_err(), Refusal::Expired);
    // The clock is set back: the refused attempt must not have bound the ticket.
    fixture.attempt(NOW, &ticket.secret, 2).unwrap();
    assert_eq!(fixture.attempt(LATER, &ticket.secret, 2).unwrap_err(), Refusal::Expired);
}

#[test]
fn every_wrong_proof_gets_the_refusal_of_an_unknown_ticket() {
    let fixture = Fixture::new();
    let ticket = fixture.issue();
    let unknown = Refusal::UnknownOrWrongProof;
    assert_eq!(fixture.attempt(NOW, &Secret::from_bytes([0; 16]), 1).unwrap_err(), unknown);
    let (one, two) = (context(1), context(2));
    let stolen = one.prove(&ticket.secret, Role::Sender);
    assert_eq!(fixture.store.decide(NOW, Path::new("/in"), &two, &stolen).unwrap_err(), unknown, "another key");
    let reflected = one.prove(&ticket.secret, Role::Receiver);
    assert_eq!(fixture.store.decide(NOW, Path::new("/in"), &one, &reflected).unwrap_err(), unknown, "wrong role");
    let proof = one.prove(&ticket.secret, Role::Sender);
    assert_eq!(fixture.store.decide(NOW, Path::new("/out"), &one, &proof).unwrap_err(), unknown, "wrong directory");
    fixture.store.revoke(&ticket.id).unwrap();
    assert_eq!(fixture.attempt(NOW, &ticket.secret, 1).unwrap_err(), unknown, "revoked");
}

#[test]
fn a_restarted_receiver_finds_its_port_secret_and_odd_directory() {
    let mut fixture = Fixture::new();
    let odd = Path::new(OsStr::from_bytes(b"/in/\xff%\xc3\xa9 \n"));
    let ticket = fixture.store.issue(NOW, odd, 4433, LATER).unwrap();
    fixture.issue();
    fixture.restart();
    fixture.store.set_port(&ticket.id, 5544).unwrap();
    let usable = fixture.store.usable(NOW, odd).unwrap();
    assert_eq!(usable, [Issued { port: 5544, ..ticket }]);
    assert!(fixture.store.usable(LATER, odd).unwrap().is_empty());
}

#[test]
fn the_file_is_private_and_a_leftover_of_a_crash_does_no_harm() {
    let fixture = Fixture::new();
    let ticket = fixture.issue();
    let file = fixture.state.path().join("litz/tickets.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::write(file.with_file_name(".tickets.json.abcdefgh.new"), "half a fi").unwrap();
    fixture.attempt(NOW, &ticket.secret, 1).unwrap();
    assert_eq!(fixture.store.usable(NOW, Path::new("/in")).unwrap().len(), 1);
}

#[test]
fn damaged_or_foreign_state_is_an_error_and_is_kept() {
    let fixture = Fixture::new();
    let ticket = fixture.issue();
    let file = fixture.state.path().join("litz/tickets.json");
    std::fs::write(&file, "{\"version\": 3, \"later\": []}").unwrap();
    assert!(matches!(fixture.store.usable(NOW, Path::new("/in")), Err(StoreError::Version(_, 3))));
    std::fs::write(&file, "{\"version\": 1, \"tick").unwrap();
    assert!(matches!(fixture.store.usable(NOW, Path::new("/in")), Err(StoreError::Content(..))));
    assert_eq!(fixture.attempt(NOW, &ticket.secret, 1).unwrap_err(), Refusal::Unavailable);
    assert_eq!(std::fs::read(&file).unwrap(), b"{\"version\": 1, \"tick", "nothing was overwritten");
}

#[test]
fn a_full_store_drops_a_spent_ticket_for_a_new_one() {
    let fixture = Fixture::new();
    let first = fixture.issue();
    for _ in 1..TICKETS_MAX {
        fixture.issue();
    }
    assert!(matches!(fixture.store.issue(NOW, Path::new("/in"), 1, LATER), Err(StoreError::Full)));
    fixture.store.complete(&first.id).unwrap();
    fixture.issue();
    assert_eq!(
        fixture.attempt(NOW, &first.secret, 1).unwrap_err(),
        Refusal::UnknownOrWrongProof,
        "the oldest spent ticket was dropped"
    );
    let long_after = LATER + KEEP_EXPIRED_SECONDS;
    fixture.store.issue(long_after, Path::new("/in"), 1, long_after + 1).unwrap();
    assert_eq!(fixture.store.read().unwrap().len(), 1, "the expired are forgotten");
}

#[test]
fn of_two_senders_at_once_one_binds_the_ticket() {
    let fixture = Fixture::new();
    let ticket = fixture.issue();
    let winners: usize = std::thread::scope(|scope| {
        let attempts: Vec<_> = (1..=8_u8)
            .map(|sender| {
                let (fixture, secret) = (&fixture, &ticket.secret);
                scope.spawn(move || usize::from(fixture.attempt(NOW, secret, sender).is_ok()))
            })
            .collect();
        attempts.into_iter().map(|attempt| attempt.join().unwrap()).sum()
    });
    assert_eq!(winners, 1);
}

#[test]
fn every_refusal_round_trips_through_its_code() {
    for refusal in [
        Refusal::UnknownOrWrongProof,
        Refusal::Expired,
        Refusal::BoundToAnotherKey,
        Refusal::Completed,
        Refusal::KeyNotAllowed,
        Refusal::Unavailable,
        Refusal::Running,
    ] {
        assert_eq!(Refusal::from_code(refusal.code()), refusal);
    }
    assert_eq!(Refusal::from_code(200), Refusal::UnknownOrWrongProof);
}

#[test]
fn a_released_ticket_serves_another_sender_unless_it_is_spent() {
    let fixture = Fixture::new();
    let ticket = fixture.issue();
    let (one, two) = (PublicKey::from_bytes([1; 32]), PublicKey::from_bytes([2; 32]));
    fixture.attempt(NOW, &ticket.secret, 1).unwrap();
    fixture.store.release(&ticket.id, two).unwrap();
    assert_eq!(fixture.store.find(&ticket.id).unwrap().unwrap().bound, Some(one), "another key has it");
    fixture.store.release(&ticket.id, one).unwrap();
    assert!(fixture.attempt(NOW, &ticket.secret, 2).unwrap().first_use);
    fixture.store.complete(&ticket.id).unwrap();
    fixture.store.release(&ticket.id, two).unwrap();
    assert_eq!(fixture.attempt(NOW, &ticket.secret, 1).unwrap_err(), Refusal::BoundToAnotherKey);
}

#[test]
fn unfinished_tickets_of_a_directory_are_revoked_together_unless_one_is_served() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.issue(), fixture.issue());
    let other = fixture.store.issue(NOW, Path::new("/other"), 4433, LATER).unwrap();
    let spent = fixture.issue();
    fixture.store.complete(&spent.id).unwrap();
    let serving = fixture.store.serve(&second.id).unwrap();
    assert!(fixture.store.is_served(&second.id).unwrap() && !fixture.store.is_served(&first.id).unwrap());
    assert!(matches!(fixture.store.serve(&second.id), Err(StoreError::Served(id)) if id == second.id));
    let revoked = fixture.store.revoke_unfinished(NOW, Path::new("/in"));
    assert!(matches!(revoked, Err(StoreError::Served(id)) if id == second.id));
    assert_eq!(fixture.store.usable(NOW, Path::new("/in")).unwrap().len(), 2, "none was revoked");
    drop(serving);
    assert_eq!(fixture.store.revoke_unfinished(NOW, Path::new("/in")).unwrap(), 2);
    let left: Vec<_> = fixture.store.all().unwrap().into_iter().map(|ticket| ticket.id).collect();
    assert_eq!(left, [other.id, spent.id]);
    assert_eq!(fixture.attempt(NOW, &first.secret, 1).unwrap_err(), Refusal::UnknownOrWrongProof);
}

#[test]
fn the_lock_file_of_a_killed_receiver_goes_with_its_ticket() {
    let fixture = Fixture::new();
    let ticket = fixture.issue();
    let lock = fixture.state.path().join(format!("litz/serving-{}.lock", ticket.id));
    std::fs::write(&lock, "").unwrap();
    assert!(!fixture.store.is_served(&ticket.id).unwrap(), "no process has it locked");
    fixture.store.revoke(&ticket.id).unwrap();
    assert!(!lock.exists());
    assert!(matches!(fixture.store.serve("../tickets"), Err(StoreError::Content(..))));
}

#[test]
fn a_state_folder_or_file_that_others_may_change_is_refused_with_advice() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let store = TicketStore::open(&state).unwrap();
    store.issue(0, Path::new("/in"), 1, 100).unwrap();
    let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o666, 0o644, 0o602] {
        set(store.path(), mode);
        let error = store.all().unwrap_err().to_string();
        assert!(error.contains("chmod 600 '") && error.contains("tickets.json"), "{error}");
        assert!(matches!(store.issue(0, Path::new("/in"), 1, 100), Err(StoreError::OpenToOthers(_))));
    }
    set(store.path(), 0o600);
    assert_eq!(store.all().unwrap().len(), 1);
    for mode in [0o777, 0o770, 0o1777] {
        set(&state, mode);
        let error = TicketStore::open(&state).unwrap_err().to_string();
        assert!(error.contains("chmod go-w '"), "{error}");
    }
    set(&state, 0o755);
    TicketStore::open(&state).unwrap();
}

#[test]
fn a_pipe_in_the_state_folder_is_an_error_and_not_a_wait() {
    let folder = tempfile::tempdir().unwrap();
    let store = TicketStore::open(folder.path()).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    for name in ["tickets.json", "tickets.lock"] {
        let path = folder.path().join(name);
        let _absent = std::fs::remove_file(&path);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        assert!(matches!(store.all(), Err(StoreError::Io(..))), "{name}");
        std::fs::remove_file(path).unwrap();
    }
    assert!(store.all().unwrap().is_empty());
}
