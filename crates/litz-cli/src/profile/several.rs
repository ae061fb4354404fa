//! A run of several connections at once, each with its own processor at both ends.

use litz::identity::{self, KeyPair};
use litz::{Connection, Endpoint, Placement};
use transfer::CancelToken;

use super::cores::{Cores, stay};
use super::failure::{Failure, to_message};
use super::run::{CONNECT_TIMEOUT, NOT_CONNECTED, Phase, Run, RunPlan, Spent, conduct, config, receive, send};

/// Maximum number of attempts per connection. Each attempt reaches a random processor, so the last
/// processor needs on average as many attempts as there are processors. More are needed only if the
/// system does not distribute connections.
const ATTEMPTS_PER_CONNECTION: usize = 64;

/// A connection: the connecting endpoint, its end, and the accepting end.
struct Pair {
    client: Endpoint,
    sending: Connection,
    receiving: Connection,
}

/// Makes a run with `count` connections. The receiving end has one endpoint under
/// `connection(count)`; the sending end has an endpoint and a thread per connection. `on_connected`
/// is called when all connections are established.
pub(crate) fn run_several(
    plan: &RunPlan,
    count: usize,
    cancel: &CancelToken,
    on_connected: impl FnOnce(),
) -> Result<Vec<Run>, Failure> {
    let key = KeyPair::generate().map_err(|error| Failure::Error(format!("cannot make a key: {error}")))?;
    let tls = |error: identity::TlsError| Failure::Error(error.to_string());
    let server_tls = identity::server_config(&key, ["litz-profile/1"]).map_err(tls)?;
    let client_tls = identity::client_config(&key, &[key.public().fingerprint()], ["litz-profile/1"]).map_err(tls)?;
    let cores = Cores::of_this_machine();
    let placed = RunPlan { placement: Placement::Connection(count), ..*plan };
    let server = Cores::bind(&cores.receiving, config(&placed).with_server_tls(server_tls))?;
    let alone = RunPlan { placement: Placement::Thread, ..*plan };
    let connect = || {
        let client = Cores::bind(&cores.sending, config(&alone))?;
        let sending = client.connect(server.local_addr(), "litz.invalid", client_tls.config.clone());
        let sending = sending.map_err(|error| Failure::Error(to_message(error)))?;
        let receiving = server.accept_timeout(CONNECT_TIMEOUT).map_err(|error| Failure::Error(to_message(error)))?;
        let receiving = receiving.ok_or_else(|| Failure::Error(NOT_CONNECTED.to_owned()))?;
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
                // If one end fails, the other does not wait for it.
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
        // Joins all threads before reporting an error.
        let spent: Vec<_> = threads.into_iter().map(|(sends, receives)| (sends.join(), receives.join())).collect();
        waited?;
        spent
            .into_iter()
            .map(|(sending, receiving)| Ok(Run { sending: end(sending, IDLE)?, receiving: end(receiving, IDLE)? }))
            .collect()
    })
}

/// The error if one of several connections transferred nothing.
const IDLE: &str = "one of the connections transferred nothing: use a longer --time or fewer connections";

/// The result of a measuring thread; `idle` is the error of one that transferred nothing.
pub(super) fn end(thread: std::thread::Result<Result<Option<Spent>, String>>, idle: &str) -> Result<Spent, Failure> {
    let spent = thread.map_err(|_| Failure::Error("a measuring thread panicked".to_owned()))?;
    let spent = spent.map_err(|error| Failure::Error(format!("a run over loopback failed: {error}")))?;
    spent.ok_or_else(|| Failure::Error(idle.to_owned()))
}

/// Establishes a connection for each processor of the accepting end. The system assigns a
/// connection to a socket by its addresses, so further connections are attempted until every
/// processor has one.
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
            "{left} of the {count} processors of connection({count}) got no connection from the system"
        ))
    })
}
