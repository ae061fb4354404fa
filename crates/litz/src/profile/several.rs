//! A run of several connections at the same time, each with a processor of its own at both ends.

use litz::identity::{self, KeyPair};
use litz::transfer::CancelToken;
use litz::{Connection, Endpoint, EndpointConfig, Placement};

use super::Failure;
use super::cores::{Cores, stay};
use super::run::{CONNECT_TIMEOUT, NOBODY_CAME, Phase, Run, RunPlan, Spent, conduct, config, receive, send, words};

/// Connections that are tried for each that is wanted, at most. Each comes to any of the processors, and the last one that has none is
/// found after as many attempts as there are processors, on average: so many times that number are needed only where the system does
/// not share connections out at all.
const ATTEMPTS_PER_CONNECTION: usize = 64;

/// A connection: the endpoint that began it, its end there, and the one that accepted it.
struct Pair {
    client: Endpoint,
    sending: Connection,
    receiving: Connection,
}

/// Runs once, with so many connections. The end that receives has them on one endpoint under `connection(count)`; the one that sends has an
/// endpoint for each, with a thread of its own. `on_connected` is called when all of them are there.
pub(crate) fn run_several(
    plan: &RunPlan,
    count: usize,
    cancel: &CancelToken,
    on_connected: impl FnOnce(),
) -> Result<Vec<Run>, Failure> {
    let key = KeyPair::generate().map_err(|error| Failure::Error(format!("cannot make a key: {error}")))?;
    let tls = |error: identity::TlsError| Failure::Error(error.to_string());
    let server_tls = identity::server_config(&key).map_err(tls)?;
    let client_tls = identity::client_config(&key, &[key.public().fingerprint()]).map_err(tls)?;
    let cores = Cores::of_this_machine();
    let placed = RunPlan { placement: Placement::Connection(count), ..*plan };
    let server = Cores::bind(&cores.receiving, EndpointConfig { server_tls: Some(server_tls), ..config(&placed) })?;
    let alone = RunPlan { placement: Placement::Thread, ..*plan };
    let connect = || {
        let client = Cores::bind(&cores.sending, config(&alone))?;
        let sending = client.connect(server.local_addr(), "litz.invalid", client_tls.config.clone());
        let sending = sending.map_err(|error| Failure::Error(words(error)))?;
        let receiving = server.accept_timeout(CONNECT_TIMEOUT).map_err(|error| Failure::Error(words(error)))?;
        let receiving = receiving.ok_or_else(|| Failure::Error(NOBODY_CAME.to_owned()))?;
        Ok(Pair { client, sending, receiving })
    };
    let pairs = one_each(count, cancel, connect)?;
    on_connected();
    let phase = Phase::default();
    std::thread::scope(|scope| {
        let (cores, phase, server) = (&cores, &phase, &server);
        let threads: Vec<_> = pairs
            .iter()
            .map(|Pair { client, sending, receiving }| {
                // Whatever becomes of one end, the other does not wait for it.
                let receives = scope.spawn(move || {
                    let spent = stay(&cores.receiving).and_then(|()| receive(plan, server, receiving, phase));
                    receiving.close(0, "");
                    spent
                });
                let sends = scope.spawn(move || {
                    let spent = stay(&cores.sending).and_then(|()| send(plan, client, sending, phase));
                    sending.close(0, "");
                    spent
                });
                (sends, receives)
            })
            .collect();
        let is_over = || threads.iter().any(|(sends, receives)| sends.is_finished() || receives.is_finished());
        let waited = conduct(plan, phase, cancel, is_over);
        phase.set(Phase::OVER);
        // All of them, before anything is said of one.
        let spent: Vec<_> = threads.into_iter().map(|(sends, receives)| (sends.join(), receives.join())).collect();
        waited?;
        spent
            .into_iter()
            .map(|(sending, receiving)| Ok(Run { sending: end(sending, IDLE)?, receiving: end(receiving, IDLE)? }))
            .collect()
    })
}

/// One of several connections had no turn.
const IDLE: &str = "one of the connections moved nothing: give them a longer --time, or ask for fewer";

/// What a thread has measured; `idle` are words for one that has moved nothing.
pub(super) fn end(thread: std::thread::Result<Result<Option<Spent>, String>>, idle: &str) -> Result<Spent, Failure> {
    let spent = thread.map_err(|_| Failure::Error("a measuring thread panicked".to_owned()))?;
    let spent = spent.map_err(|error| Failure::Error(format!("a run over loopback broke off: {error}")))?;
    spent.ok_or_else(|| Failure::Error(idle.to_owned()))
}

/// A connection for each processor of the end that accepts. The system says to whose socket one comes, by its addresses, so others are tried
/// until all have one.
fn one_each(
    count: usize,
    cancel: &CancelToken,
    mut connect: impl FnMut() -> Result<Pair, Failure>,
) -> Result<Vec<Pair>, Failure> {
    let mut pairs: Vec<Option<Pair>> = (0..count).map(|_| None).collect();
    for _ in 0..ATTEMPTS_PER_CONNECTION * count {
        if pairs.iter().all(Option::is_some) {
            break;
        }
        if cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        let pair = connect()?;
        let place = pair.receiving.processor();
        pairs[place].get_or_insert(pair);
    }
    let left = pairs.iter().filter(|pair| pair.is_none()).count();
    let pairs: Option<Vec<Pair>> = pairs.into_iter().collect();
    pairs.ok_or_else(|| {
        Failure::Error(format!(
            "the system gives {left} of the {count} processors of connection({count}) no connection"
        ))
    })
}
