//! Sending to a host that is reached by ssh.

use litz::identity::PublicKey;
use transfer::{CancelToken, Ticket};

use super::far_end::FarEnd;
pub(crate) use super::far_end::FarError;
use super::message::{ReceiveRequest, Request};
use super::place::FarPath;
use crate::cli::args::SendOptions;

/// The far receiver of a transfer.
pub(crate) struct Far {
    end: FarEnd,
    pub(crate) ticket: Ticket,
}

impl Far {
    /// Starts a receiver on the far host, for the key `own`.
    ///
    /// # Errors
    /// A message for the user, or the interrupt.
    pub(crate) fn start(
        options: &SendOptions,
        to: &FarPath,
        own: PublicKey,
        cancel: &CancelToken,
    ) -> Result<Self, FarError> {
        let end = FarEnd::start(&options.ssh, &to.host, cancel)?;
        end.check_options(options)?;
        end.request(&Request::Receive(ReceiveRequest {
            directory: to.path.clone().into_os_string(),
            sender: own.to_string(),
            overwrite: true,
            port: options.ssh.port,
            idle_timeout_ms: options.transport.idle_timeout.as_millis(),
            update: options.update.update,
            dry_run: options.update.dry_run,
            delete: options.delete.then(|| options.patterns()),
        }))?;
        let ticket = end.ticket(cancel)?;
        let ticket: Ticket = ticket.parse().map_err(|error| format!("{} sent no usable ticket: {error}", to.host))?;
        if ticket.receiver != end.key().fingerprint() {
            return Err(format!("the ticket of {} is for another host's key", to.host).into());
        }
        Ok(Self { end, ticket })
    }

    /// Why the receiver has ended, if it has.
    pub(crate) fn ending(&self) -> Option<String> {
        self.end.ending()
    }
}
