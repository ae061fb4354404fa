//! What a receiver tells its user when it starts, and when an interrupt ends it.

use serde_json::json;
use transfer::{Secret, Ticket};

use super::Receiver;
use crate::cli::serving::authorisation::Admission;
use crate::cli::serving::refusals;
use crate::cli::warning::Warning;
use crate::cli::{exit, host, out};

impl Receiver<'_> {
    /// Prints the ticket. A failure is an error, because no sender can connect without the ticket.
    pub(super) fn announce(&self) -> Result<(), String> {
        let fingerprint = self.state.key.public().fingerprint();
        let (secret, expires_unix, bound) = match &self.admission {
            Admission::Ticket(ticket) => {
                let issued = &ticket.issued;
                let bound = issued.bound.map(|key| key.fingerprint().to_string());
                (issued.secret.clone(), issued.expires_unix, bound)
            }
            // With --allow the ticket is no credential: it only contains the server's addresses and
            // its key.
            Admission::Keys(_) => (Secret::generate().map_err(|error| error.to_string())?, (1 << 40) - 1, None),
        };
        let addresses = self.options.listening.ticket_addresses(&self.addresses, self.endpoint.local_addr().port());
        if let Some(warning) = self.options.listening.loopback_warning(&addresses) {
            self.warn(Warning::LoopbackOnly, &warning);
        }
        let ticket = Ticket::new(addresses.clone(), fingerprint, secret, expires_unix);
        let text = ticket.to_text().map_err(|error| error.to_string())?;
        if let Some(invitation) = &self.options.invitation {
            return invitation.peer.announce(&text);
        }
        let directory = match &self.output {
            Some(_) => "standard output".to_owned(),
            None => self.directory.display().to_string(),
        };
        if self.options.transport.json {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let mut event = json!({
                "event": "listening", "ticket": text, "directory": directory.to_string(),
                "port": self.endpoint.local_addr().port(), "addresses": addresses,
                "expires_unix": expires_unix, "fingerprint": fingerprint.to_string(), "resumed": bound.is_some(),
                "advice": self.advice, "sandbox": self.sandbox.0,
            });
            if let Some(bound) = bound {
                event["bound_to"] = bound.into();
            }
            out::json(&event);
            return out::check();
        }
        for advice in &self.advice {
            exit::advise(self.options.transport.quiet, advice);
        }
        let by_key = if matches!(self.admission, Admission::Keys(_)) { " --by-key" } else { "" };
        let paths = if self.output.is_some() { "-" } else { "PATH..." };
        let what = if bound.is_some() { "Resuming" } else { "Receiving" };
        out::note(&format!("{what} into {directory}. On the sending host run:\n"));
        out::line(&format!("litz send{by_key} {paths} {text}"));
        out::check()?;
        let expiry = host::utc(expires_unix);
        out::note(&match (&self.admission, bound) {
            (Admission::Ticket(_), None) => {
                format!(
                    "\nThe ticket is a secret. It is valid for one sender, until it is used or expires on {expiry}."
                )
            }
            (Admission::Ticket(_), Some(bound)) => {
                format!("\nUntil the transfer is complete or {expiry}, {}.", refusals::bound_to(&bound))
            }
            (Admission::Keys(_), _) => "\nAccepting transfers from the listed keys. Press Ctrl-C to stop.".to_owned(),
        });
        Ok(())
    }

    /// What an interrupt leaves, and how to continue.
    pub(super) fn interrupt_message(&self) -> String {
        match &self.admission {
            Admission::Ticket(_) if self.output.is_some() => {
                "interrupted; the data is incomplete and the ticket is revoked: run the command again for a new one"
                    .to_owned()
            }
            Admission::Ticket(ticket) => format!(
                "interrupted; the ticket remains valid: run the same command again to serve it, or `litz tickets \
                 revoke {}` to revoke it",
                ticket.issued.id
            ),
            Admission::Keys(_) if self.serves_one_transfer() => {
                "interrupted: run the same command again to go on from here".to_owned()
            }
            Admission::Keys(_) => {
                "interrupted; no transfers are accepted now: run the same command again to accept them".to_owned()
            }
        }
    }
}
