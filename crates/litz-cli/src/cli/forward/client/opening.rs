//! The beginning of a connection: the client proves that it may forward, and asks for the listeners of the
//! server.

use std::sync::Arc;

use forward::message::Message;
use forward::spec::Listen;
use forwarding::frames::{self, FrameError};
use forwarding::session::{Session, Streams};
use serde_json::json;
use transfer::{Proof, Refusal, Role, proof_context};

use super::Client;
use super::connecting::PEER;
use crate::cli::connect::Connected;
use crate::cli::connection_log::log_connected;
use crate::cli::lost::Lost;
use crate::cli::serving::sandbox::lookup_advice;

impl Client<'_> {
    /// Proves the right to forward, and asks for the listeners of the server.
    pub(super) async fn begin(&self, connected: &Connected, is_first: bool) -> Result<(Arc<Session>, Streams), Lost> {
        let connection = &connected.connection;
        log_connected(connection);
        let lost = |error: String| match (connected.peer_ended(PEER), connection.close_reason()) {
            (Some(message), _) => Lost::passing(message),
            (None, Some(closed)) => self.explain(&closed),
            (None, None) => Lost::passing(error),
        };
        let mut control = connection.open_bi_async().await.map_err(|error| lost(error.to_string()))?;
        self.prove(connected, &mut control).await.map_err(|error| error.unwrap_or_else(&lost))?;
        self.ask_for_listeners(&mut control, is_first).await.map_err(|error| error.unwrap_or_else(&lost))?;
        let report = Arc::clone(&self.report);
        let remote = connection.remote_addr().to_string();
        let session = Session::new(connection.clone(), remote, self.forwards.udp_idle, report);
        Ok((Arc::new(session.with_ends(connected.ends()).with_lookup_advice(lookup_advice)), control))
    }

    /// Says Hello. The error is a message if the connection may have ended.
    async fn prove(&self, connected: &Connected, control: &mut Streams) -> Result<(), Result<Lost, String>> {
        let connection = &connected.connection;
        let context = proof_context(connection, self.state.key.public(), self.access.ticket.receiver)
            .map_err(|error| Err(error.to_string()))?;
        let proof = (!self.access.by_key).then(|| *context.prove(&self.access.ticket.secret, Role::Sender).as_bytes());
        let hello = Message::Hello { run: *self.run_id.as_bytes(), proof };
        frames::send(&mut control.0, &hello).await.map_err(text)?;
        match frames::receive(&mut control.1, frames::PROMPT).await.map_err(text)? {
            Message::Accepted { proof } => {
                let proof = proof.map(Proof::from_bytes);
                let is_proven = |proof: &Proof| context.verify(&self.access.ticket.secret, Role::Receiver, proof);
                if !self.access.by_key && !proof.as_ref().is_some_and(is_proven) {
                    return Err(Ok(Lost::last(
                        "the server does not know the ticket's secret: if it lists the keys of clients, use --by-key"
                            .to_owned(),
                    )));
                }
                Ok(())
            }
            Message::Refused { code } => Err(Ok(self.refusal(Refusal::from_code(code)))),
            _ => Err(Ok(Lost::last("the server answered with a message that is not expected".to_owned()))),
        }
    }

    /// Asks for each listener on the server's host. The error is a message if the connection may have ended.
    async fn ask_for_listeners(&self, control: &mut Streams, is_first: bool) -> Result<(), Result<Lost, String>> {
        for (id, forward) in self.forwards.remote.iter().enumerate() {
            let id = u32::try_from(id).unwrap_or(u32::MAX);
            let request = Message::Listen { id, listen: forward.listen.clone() };
            frames::send(&mut control.0, &request).await.map_err(text)?;
            match frames::receive(&mut control.1, frames::PROMPT).await.map_err(text)? {
                Message::Listening { id: answered, listen } if answered == id => {
                    let event = json!({
                        "event": "forwarding", "kind": "remote", "listen": listen.to_string(),
                        "target": forward.target.to_string(),
                        "port": if let Listen::Port { port, .. } = listen { Some(port) } else { None },
                    });
                    self.report.tell(&event, &format!("{listen} of the server leads to {}", forward.target));
                }
                Message::NotListening { id: answered, failure } if answered == id && is_first => {
                    return Err(Ok(Lost::last(failure.to_string())));
                }
                Message::NotListening { id: answered, failure } if answered == id => {
                    return Err(Ok(Lost::passing(failure.to_string())));
                }
                _ => return Err(Ok(Lost::last("the server answered with a message that is not expected".to_owned()))),
            }
        }
        Ok(())
    }

    /// Why the server lets this client do nothing.
    fn refusal(&self, refusal: Refusal) -> Lost {
        let message = match refusal {
            Refusal::Expired => "the ticket has expired: ask for a new one".to_owned(),
            Refusal::BoundToAnotherKey => {
                "the ticket belongs to another client, the first that used it: ask for a new one, or run this command \
                 on the same host and as the same user as before"
                    .to_owned()
            }
            Refusal::KeyNotAllowed => {
                let by_key = if self.access.by_key { "" } else { ", and use --by-key" };
                format!(
                    "the server does not know this host's key: have this line, which `litz id` prints, added to its \
                     list of keys{by_key}: {}",
                    self.state.key.public()
                )
            }
            Refusal::Unavailable => {
                let message = "the server cannot read or write its own state: see its messages".to_owned();
                return Lost::passing(message);
            }
            _ if self.access.by_key => "the server wants the secret of its ticket: leave --by-key out".to_owned(),
            _ => "the server knows no such ticket: it may be revoked, or issued for other targets; ask for a new one"
                .to_owned(),
        };
        Lost::last(message)
    }
}

/// The message of a connection that may have ended.
fn text(error: FrameError) -> Result<Lost, String> {
    Err(error.to_string())
}
