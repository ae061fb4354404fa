//! A connection that is open, until it ends.

use std::sync::Arc;

use forward::address::Target;
use forward::message::Message;
use forwarding::frames;
use forwarding::session::{AllowedRequests, Session, Streams};
use forwarding::sessions::Current;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::{MissedTickBehavior, interval};
use transfer::CLOSE_CODE;

use super::connecting::PEER;
use super::{Client, For, LOOK_INTERVAL, tell_ready};
use crate::cli::connect::Connected;
use crate::cli::connection_log::log_ended;
use crate::cli::exit;
use crate::cli::forward::program::Program;
use crate::cli::forward::stdio;
use crate::cli::lost::Lost;
use crate::cli::path_report::path_problems;
use crate::cli::warning::Warning;

impl Client<'_> {
    /// Serves the connection until it ends.
    pub(super) async fn serve(&self, connected: &Connected, session: &Arc<Session>, mut control: Streams) -> Lost {
        let allowed = Arc::new(self.allowed());
        self.current.send_replace(Current::Here(Arc::clone(session)));
        self.tell_connected(connected);
        let connection = &connected.connection;
        let mut look = interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut run = std::pin::pin!(session.run(&allowed));
        let mut control_end = std::pin::pin!(frames::read(&mut control.1));
        let lost = loop {
            tokio::select! {
                closed = &mut run => break self.explain(&closed),
                ended = &mut control_end => {
                    // The end of the control stream is the end of the connection, whose reason is
                    // better.
                    if ended.is_ok() {
                        connection.close(CLOSE_CODE, "a message that is not expected");
                        break Lost::last("the server sent a message that is not expected".to_owned());
                    }
                    break self.explain(&connection.closed_async().await);
                }
                () = self.program_ended() => {
                    connection.close(CLOSE_CODE, "the client ends");
                    break Lost::interrupt();
                }
                _ = look.tick() => {
                    for link in connected.links.iter().flat_map(|links| links.take_events()) {
                        self.report.tell(&link.json(), &link.text());
                    }
                    for (warning, message) in path_problems(connection, &connected.ends()) {
                        self.report.warn(warning, &message);
                    }
                    if self.cancel.is_cancelled() {
                        connection.close(CLOSE_CODE, "the client ends");
                        break Lost::interrupt();
                    }
                }
            }
        };
        self.current.send_replace(Current::Away(None));
        log_ended(connection);
        match connected.peer_ended(PEER) {
            Some(message) if !lost.is_final => Lost::passing(message),
            _ => lost,
        }
    }

    /// What the server may ask for.
    fn allowed(&self) -> AllowedRequests {
        let targets = self.forwards.remote.iter().map(|forward| forward.target.clone());
        match self.purpose {
            For::Program(Program { published: Some(published), .. }) => {
                let port = |target| if let Target::Host(_, address) = target { address.port } else { 0 };
                AllowedRequests::Program(targets.map(port).collect(), Arc::clone(published))
            }
            For::Daemon(daemon_socket) => AllowedRequests::Client(targets.collect(), Some(daemon_socket.arrivals())),
            For::Program(_) | For::Forwards | For::Stdio(_) => AllowedRequests::Client(targets.collect(), None),
        }
    }

    fn tell_connected(&self, connected: &Connected) {
        let stats = connected.connection.stats();
        let remote = connected.connection.remote_addr().to_string();
        let event = json!({
            "event": "connected", "remote": remote, "multipath": connected.is_multipath,
            "paths_wanted": connected.paths_wanted, "cipher": stats.session.cipher_suite,
            "handshake_us": stats.handshake_time.map(units::Duration::as_micros),
        });
        self.report.tell(&self.event(event), &self.text(&format!("connected to {remote}")));
        tell_ready();
        if connected.paths_wanted > 1 && !connected.is_multipath {
            let note = "the server supports one path only: the other links are not used";
            self.report.warn(Warning::PathLeftOut, note);
        }
    }

    /// Waits until the program has ended, if there is one.
    async fn program_ended(&self) {
        match self.purpose {
            For::Program(program) => program.ended().await,
            For::Forwards | For::Stdio(_) | For::Daemon(_) => std::future::pending().await,
        }
    }

    pub(super) fn carry_stdio(
        &self,
        runtime: &Runtime,
        connected: &Connected,
        session: &Session,
        target: &Target,
    ) -> Result<u8, Lost> {
        let opened = runtime.block_on(self.unless_cancelled(async {
            let opened = async {
                let request = Message::Open { target: target.clone() };
                let (send, mut recv) = session.open(&request).await.map_err(|error| error.to_string())?;
                frames::answer(&mut recv).await.map_err(|failure| failure.to_string())?;
                Ok((send, recv))
            };
            Ok(opened.await)
        }))?;
        match opened.and_then(|streams| stdio::carry(&session.connection, streams, &self.cancel)) {
            Ok(stdio::End::InOrder) => Ok(exit::DONE),
            Ok(stdio::End::Interrupted) => Err(Lost::interrupt()),
            Err(message) => {
                let message = connected.peer_ended(PEER).unwrap_or(message);
                exit::report(self.server.transport.json, exit::INCOMPLETE, &message);
                Ok(exit::INCOMPLETE)
            }
        }
    }
}
