//! What a receiver tells its user when it starts, and when an interrupt ends it.

use std::net::SocketAddr;

use serde_json::json;
use transfer::{Secret, Ticket, TicketAddress};

use super::Receiver;
use super::authorisation::Admission;
use crate::cli::args::Advertised;
use crate::cli::{exit, host, out};

impl Receiver<'_> {
    /// Prints the ticket. A failure is an error, because no sender can connect without the ticket.
    pub(super) fn announce(&self) -> Result<(), String> {
        let fingerprint = self.state.key.public().fingerprint();
        let (secret, expires_unix, resumed) = match &self.admission {
            Admission::Ticket(ticket) => {
                let issued = &ticket.issued;
                (issued.secret.clone(), issued.expires_unix, issued.bound.is_some())
            }
            // With --allow the ticket is no credential: it only contains the server's addresses and
            // its key.
            Admission::Keys(_) => (Secret::generate().map_err(|error| error.to_string())?, (1 << 40) - 1, false),
        };
        let addresses = self.addresses();
        let ticket = Ticket::new(addresses.clone(), fingerprint, secret, expires_unix);
        let text = ticket.to_text().map_err(|error| error.to_string())?;
        let directory = match &self.output {
            Some(_) => "standard output".to_owned(),
            None => self.directory.display().to_string(),
        };
        if self.options.transport.json {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            out::json(&json!({
                "event": "listening", "ticket": text, "directory": directory.to_string(),
                "port": self.endpoint.local_addr().port(), "addresses": addresses,
                "expires_unix": expires_unix, "fingerprint": fingerprint.to_string(), "resumed": resumed,
                "advice": self.advice, "sandbox": self.sandbox.0,
            }));
            return out::check();
        }
        for advice in &self.advice {
            exit::advise(self.options.transport.quiet, advice);
        }
        let by_key = if matches!(self.admission, Admission::Keys(_)) { " --by-key" } else { "" };
        let paths = if self.output.is_some() { "-" } else { "PATH..." };
        let what = if resumed { "Resuming" } else { "Receiving" };
        out::note(&format!("{what} into {directory}. On the sending host run:\n"));
        out::line(&format!("litz send{by_key} {paths} {text}"));
        out::check()?;
        out::note(&match &self.admission {
            Admission::Ticket(_) => format!(
                "\nThe ticket is a secret. It is valid for one sender, until it is used or expires on {}.",
                host::utc(expires_unix)
            ),
            Admission::Keys(_) => "\nAccepting transfers from the listed keys. Press Ctrl-C to stop.".to_owned(),
        });
        Ok(())
    }

    fn addresses(&self) -> Vec<TicketAddress> {
        if self.options.advertise.is_empty() {
            return self.addresses.clone();
        }
        let port = self.endpoint.local_addr().port();
        let chosen = self.options.advertise.iter().map(|address| match *address {
            Advertised::Ip(ip) => SocketAddr::new(ip, port),
            Advertised::Socket(address) => address,
        });
        chosen.map(TicketAddress::Socket).collect()
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
            Admission::Keys(_) => {
                "interrupted; no transfers are accepted now: run the same command again to accept them".to_owned()
            }
        }
    }
}
