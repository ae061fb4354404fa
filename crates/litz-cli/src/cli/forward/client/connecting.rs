//! Connecting to the server, and again whenever the connection was lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forwarding::sessions::Current;
use serde_json::json;
use tokio::runtime::Runtime;

use super::{Client, For, LOOK_INTERVAL};
use crate::cli::connect::{Connected, Connector};
use crate::cli::forward::engine::Engine;
use crate::cli::lost::Lost;
use crate::cli::tls;

/// Pause between attempts to reconnect.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What the other host is called in messages.
pub(super) const PEER: &str = "server";

impl Client<'_> {
    /// Connects, and reconnects, until the user interrupts or no attempt can succeed.
    pub(in crate::cli::forward) fn keep_connected(&self, runtime: &Runtime) -> Result<u8, Lost> {
        let result = self.keep_trying(runtime);
        // Those that are still there are reset with the runtime.
        let why = result.as_ref().map_or_else(|lost| lost.message.clone(), |_| "the command ends".to_owned());
        self.current.send_replace(Current::Over(why));
        runtime.block_on(self.handshakes.end());
        result
    }

    fn keep_trying(&self, runtime: &Runtime) -> Result<u8, Lost> {
        let (mut is_first, mut was_connected) = (true, false);
        let mut lost_at = self.clock.now();
        let mut last_message = String::new();
        loop {
            let lost = match self.connect(is_first) {
                Ok(connected) => {
                    connected.warn(!was_connected, |kind, message| self.report.warn(kind, message));
                    match runtime.block_on(self.unless_cancelled(self.begin(&connected, !was_connected))) {
                        Ok((session, control)) => {
                            if let For::Stdio(target) = self.purpose {
                                return self.carry_stdio(runtime, &connected, &session, target);
                            }
                            if !was_connected && let For::Program(program) = self.purpose {
                                let own = Engine::Own(self.own());
                                program.start(runtime.handle(), own, Arc::clone(&self.report));
                            }
                            last_message.clear();
                            was_connected = true;
                            let lost = runtime.block_on(self.serve(&connected, &session, control));
                            lost_at = self.clock.now();
                            lost
                        }
                        Err(lost) => lost,
                    }
                }
                Err(lost) => lost,
            };
            is_first = false;
            // A user who names a server in a command waits for it. Those of a list may come later.
            if lost.is_final || !(was_connected || self.access.is_listed()) {
                return Err(self.named(lost));
            }
            let limit = self.server.retry_for;
            if limit.is_some_and(|limit| self.clock.now().saturating_since(lost_at) >= limit) {
                return Err(self.named(lost));
            }
            self.current.send_replace(Current::Away(Some(lost.message.clone())));
            // An outage may last for hundreds of attempts.
            if lost.message != last_message {
                let event = json!({ "event": "retrying", "message": lost.message });
                let again = if was_connected { "reconnecting" } else { "trying again" };
                self.report.tell(&self.event(event), &self.text(&format!("{}; {again}", lost.message)));
                last_message = lost.message;
            }
            self.pause()?;
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the command is above the engine: it waits before it reconnects")]
    fn pause(&self) -> Result<(), Lost> {
        let end = self.clock.now() + RETRY_INTERVAL.into();
        while self.clock.now() < end {
            if self.cancel.is_cancelled() {
                return Err(Lost::interrupt());
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    fn connect(&self, is_first: bool) -> Result<Connected, Lost> {
        let tls = tls::client(&self.state.key, self.access.ticket.receiver, forward::ALPN).map_err(Lost::last)?;
        let connector = Connector {
            peer: PEER,
            transport: self.transport.clone(),
            options: &self.server.transport,
            single_path: &self.server.single_path,
            paths: &self.server.paths,
            tls: &tls,
            cancel: &self.cancel,
            on_unanswered: &|addresses| self.tell_unanswered(addresses, is_first),
            is_brief: false,
            asks_ports: false,
            is_first,
            event_handler: None,
        };
        Ok(connector.connect(&self.access.ticket)?)
    }

    fn tell_unanswered(&self, addresses: &[SocketAddr], is_first: bool) {
        if is_first {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let event = json!({ "event": "unanswered", "addresses": addresses });
            self.report.tell(&event, &format!("trying {}; no answer yet", addresses.join(", ")));
        }
    }

    /// The result of `work`, unless the user interrupts it.
    pub(super) async fn unless_cancelled<T>(&self, work: impl Future<Output = Result<T, Lost>>) -> Result<T, Lost> {
        let cancelled = async {
            while !self.cancel.is_cancelled() {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        tokio::select! {
            result = work => result,
            () = cancelled => Err(Lost::interrupt()),
        }
    }
}
