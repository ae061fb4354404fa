//! The side of the daemon: programs of this user come in, and say what they want.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use forward::daemon::{REQUEST_LEN_MAX, Reply, Request, STATUS_LEN_MAX};
use forward::message::{Failure, Reason};
use forwarding::session::OtherRequests;
use rings::memory::memory_len;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use transfer::CancelToken;

use super::attached::AttachedProgram;
use super::packets::Packets;
use super::place::Bound;
use super::publications::Publications;
use super::ring_end::{RING_LEN, RINGS_MAX};
use super::routes::Routes;
use crate::cli::forward::report::Report;

/// Programs that use the daemon at a time. Further ones are refused.
const PROGRAMS_MAX: usize = 64;

/// The time for the first message of a program, and for one that it has to take.
const PROMPT: Duration = Duration::from_secs(5);

/// The pause after a failure to accept, because the process has no more descriptors, for instance.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Where programs come in.
pub(in crate::cli::forward) struct DaemonSocket {
    /// Removed first at the end, so that another daemon can be started.
    bound: Bound,
    cancel: CancelToken,
    shared: Arc<Shared>,
}

/// What the tasks of programs share.
struct Shared {
    programs: Mutex<Programs>,
    publications: Arc<Publications>,
    /// For connections with rings.
    ring_places: Arc<Semaphore>,
    /// The program that has asked for the end. It learns that the daemon has ended when this is dropped.
    stopped_by: OnceLock<Packets>,
}

#[derive(Default)]
struct Programs {
    next: u64,
    by_number: BTreeMap<u64, Arc<AttachedProgram>>,
}

/// What the tasks of programs need.
struct Server {
    routes: Arc<Routes>,
    report: Arc<Report>,
    cancel: CancelToken,
    shared: Arc<Shared>,
}

impl DaemonSocket {
    /// Listens at `path`. `cancel` ends the daemon.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn open(path: PathBuf, cancel: CancelToken) -> Result<Self, String> {
        let publications = Arc::new(Publications::new());
        let ring_places = Arc::new(Semaphore::new(RINGS_MAX));
        let shared = Shared { programs: Mutex::default(), publications, ring_places, stopped_by: OnceLock::new() };
        Ok(Self { bound: Bound::open(path)?, cancel, shared: Arc::new(shared) })
    }

    /// Whether a program has asked for the end.
    pub(in crate::cli::forward) fn is_stopped(&self) -> bool {
        self.shared.stopped_by.get().is_some()
    }

    /// What the server may ask for programs: to take what has arrived at their publications.
    pub(in crate::cli::forward) fn arrivals(&self) -> Arc<dyn OtherRequests> {
        Arc::clone(&self.shared.publications) as Arc<dyn OtherRequests>
    }

    /// Serves programs until the task set is dropped. Needs the runtime.
    ///
    /// # Errors
    /// A message for the user.
    pub(in crate::cli::forward) fn serve(
        &self,
        routes: Routes,
        report: &Arc<Report>,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), String> {
        let path = self.bound.path.display().to_string();
        let listener = self.bound.socket.try_clone().and_then(|socket| UnixListener::from_std(socket.into()));
        let listener = listener.map_err(|error| format!("cannot listen on {path}: {error}"))?;
        report.tell(&json!({ "event": "serving", "socket": path }), &format!("listening for programs on {path}"));
        let (report, cancel, shared) = (Arc::clone(report), self.cancel.clone(), Arc::clone(&self.shared));
        tasks.spawn(accept(listener, Arc::new(Server { routes: Arc::new(routes), report, cancel, shared })));
        Ok(())
    }
}

async fn accept(listener: UnixListener, server: Arc<Server>) {
    // They end with this task. What they carry goes on.
    let mut attached_programs = JoinSet::new();
    loop {
        while attached_programs.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((socket, _)) => {
                let server = Arc::clone(&server);
                attached_programs.spawn(async move {
                    if let Err(error) = server.serve(Packets::new(socket)).await {
                        tracing::info!(%error, "a program");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a program cannot come in");
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
}

impl Server {
    /// Serves one program until it ends.
    async fn serve(&self, packets: Packets) -> io::Result<()> {
        let peer = packets.peer()?;
        if peer.uid != rustix::process::geteuid() {
            let failure = Failure::new(Reason::NotAllowed, "the daemon serves its own user only");
            let event = json!({ "event": "program_refused", "user": peer.uid.as_raw() });
            self.report.fail(&event, &format!("a program of user {} was refused", peer.uid.as_raw()));
            return reply(&packets, &Reply::Refused(failure)).await;
        }
        let mut buffer = [0; REQUEST_LEN_MAX];
        let first = timeout(PROMPT, receive(&packets, &mut buffer)).await;
        let first = first.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no request came in time")));
        let first = match first {
            Ok(Some((request, _))) if !matches!(request, Request::Hello { .. } | Request::Status | Request::Stop) => {
                Err(malformed("the first message of a program is another one"))
            }
            first => first,
        };
        let first = match first {
            Ok(first) => first,
            Err(error) => return explain(&packets, error).await,
        };
        match first {
            Some((Request::Hello { program }, _)) => {
                let pid = peer.pid.as_raw_nonzero().get();
                let ring_places = Arc::clone(&self.shared.ring_places);
                self.admit(Arc::new(AttachedProgram::new(packets, program, pid, ring_places)), &mut buffer).await
            }
            Some((Request::Status, _)) => self.tell_status(&packets).await,
            Some((Request::Stop, _)) => {
                reply(&packets, &Reply::Stopping).await?;
                let _first = self.shared.stopped_by.set(packets);
                self.cancel.cancel();
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn admit(&self, attached: Arc<AttachedProgram>, buffer: &mut [u8]) -> io::Result<()> {
        let Some(number) = self.shared.enter(&attached) else {
            let failure = Failure::new(Reason::Busy, &format!("{PROGRAMS_MAX} programs use the daemon already"));
            return reply(&attached.packets, &Reply::Refused(failure)).await;
        };
        let served = self.serve_requests(&attached, buffer).await;
        attached.cancel_all();
        let served = match served {
            Ok(()) => Ok(()),
            Err(error) => explain(&attached.packets, error).await,
        };
        attached.packets.close();
        self.shared.programs().by_number.remove(&number);
        served
    }

    async fn serve_requests(&self, attached: &Arc<AttachedProgram>, buffer: &mut [u8]) -> io::Result<()> {
        reply(&attached.packets, &Reply::Accepted).await?;
        while let Some((request, descriptor)) = receive(&attached.packets, buffer).await? {
            match request {
                Request::Connect { number, socket, target } => match self.routes.for_target(&target) {
                    Ok(own) => attached.connect(own, &self.report, number, socket, target).await?,
                    Err(failure) => attached.refuse(&self.report, number, &target, failure).await?,
                },
                Request::LookUp { number, name } => attached.look_up(&self.routes, number, name).await?,
                Request::Carry { number } => {
                    let descriptor = descriptor.ok_or_else(|| malformed("a socket is missing"))?;
                    attached.carry(number, descriptor);
                }
                Request::Cancel { number } => attached.cancel(number),
                Request::Publish { number, socket, listen } => match self.routes.for_place(&listen) {
                    Ok(own) => {
                        let publications = &self.shared.publications;
                        publications.publish(own, &self.report, attached, number, socket, listen).await?;
                    }
                    Err(failure) => attached.refuse(&self.report, number, &listen, failure).await?,
                },
                Request::Decline { number, failure } => attached.decline(number, failure),
                Request::Hello { .. } | Request::Status | Request::Stop => {
                    return Err(malformed("a message that only comes first"));
                }
            }
        }
        Ok(())
    }

    async fn tell_status(&self, packets: &Packets) -> io::Result<()> {
        let Some(messages) = Reply::status(&self.status().to_string()) else {
            let failure = Failure::new(Reason::Other, &format!("the status has more than {STATUS_LEN_MAX} bytes"));
            return reply(packets, &Reply::Refused(failure)).await;
        };
        for message in &messages {
            reply(packets, message).await?;
        }
        Ok(())
    }

    fn status(&self) -> Value {
        let attached: Vec<_> = self.shared.programs().by_number.values().cloned().collect();
        let publications = &self.shared.publications;
        let programs: Vec<Value> = attached.iter().map(|attached| attached.status(publications.of(attached))).collect();
        let with_rings = RINGS_MAX - self.shared.ring_places.available_permits();
        json!({
            "event": "status", "pid": std::process::id(), "servers": self.routes.status(), "programs": programs,
            "rings": { "connections": with_rings, "memory_bytes": with_rings * memory_len(RING_LEN) },
        })
    }
}

impl Shared {
    fn enter(&self, attached: &Arc<AttachedProgram>) -> Option<u64> {
        let mut programs = self.programs();
        if programs.by_number.len() >= PROGRAMS_MAX {
            return None;
        }
        let number = programs.next;
        programs.next += 1;
        programs.by_number.insert(number, Arc::clone(attached));
        Some(number)
    }

    fn programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a reply. A program that does not take it in time is given up.
pub(super) async fn reply(packets: &Packets, reply: &Reply) -> io::Result<()> {
    timeout(PROMPT, packets.send(&reply.encode(), &[])).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Says to a program why its connection ends, if the program is the reason. Returns the error.
async fn explain(packets: &Packets, error: io::Error) -> io::Result<()> {
    let reason = match error.kind() {
        io::ErrorKind::InvalidData => Reason::Unknown,
        io::ErrorKind::TimedOut => Reason::TimedOut,
        _ => return Err(error),
    };
    // A program that takes no replies is not waited for.
    let _full = packets.try_send(&Reply::Refused(Failure::new(reason, &error.to_string())).encode());
    Err(error)
}

async fn receive(packets: &Packets, buffer: &mut [u8]) -> io::Result<Option<(Request, Option<OwnedFd>)>> {
    let Some((len, descriptor)) = packets.receive(buffer).await? else { return Ok(None) };
    let request = Request::decode(&buffer[..len]).map_err(|error| malformed(&error.to_string()))?;
    Ok(Some((request, descriptor)))
}

pub(super) fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
