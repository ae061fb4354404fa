//! What a receiver tells its user of senders that have ended.

use serde_json::json;
use transfer::{Refusal, Summary, TransferError};

use super::attempt::Attempt;
use super::authorisation::Admission;
use super::{Receiver, refusals};
use crate::cli::{exit, out};

impl Receiver<'_> {
    /// Prints that files of a transfer have failed.
    pub(super) fn print_incomplete(&self, attempt: &Attempt, summary: &Summary) {
        let failed = summary.failed;
        let files = if failed == 1 { "1 file was".to_owned() } else { format!("{failed} files were") };
        let message = format!(
            "{files} not received; the ticket stays valid: once the cause is removed, send again with the same command. \
             Waiting for the sender; Ctrl-C ends this"
        );
        if self.options.transport.json {
            out::json(&json!({
                "event": "visit_ended", "peer": attempt.peer.to_string(), "key": attempt.key.to_string(),
                "authorised": true, "message": message,
            }));
        } else {
            exit::report(false, exit::FAILED, &format!("{}: {message}", attempt.peer));
        }
    }

    /// Prints that a sender left before the end, or was refused.
    pub(super) fn print_end(&self, attempt: &Attempt, error: &TransferError) {
        let key = attempt.key.fingerprint();
        let bound = match (&self.admission, error) {
            (Admission::Ticket(ticket), TransferError::Refused(Refusal::BoundToAnotherKey)) => ticket.bound(),
            _ => None,
        };
        let bound = bound.map(|key| key.fingerprint().to_string());
        if self.options.transport.json {
            let message = match error {
                TransferError::Refused(refusal) => refusals::message(*refusal, &attempt.key),
                _ => error.to_string(),
            };
            let mut event = json!({
                "event": "visit_ended", "peer": attempt.peer.to_string(), "key": attempt.key.to_string(),
                "authorised": attempt.authorised, "message": message,
            });
            if let Some(bound) = bound {
                event["bound_to"] = bound.into();
            }
            out::json(&event);
            return;
        }
        let text = match (error, bound) {
            (TransferError::Refused(refusal), None) => refusals::message(*refusal, &attempt.key),
            (_, Some(bound)) => format!("refused {key}: the ticket is bound to {bound}"),
            _ if attempt.authorised && matches!(self.admission, Admission::Ticket(_)) => {
                format!("{error}; waiting for the sender to reconnect")
            }
            _ => error.to_string(),
        };
        exit::report(false, exit::FAILED, &format!("{}: {text}", attempt.peer));
    }

    /// Prints the number of refused senders that were not printed, when it is time.
    pub(super) fn print_refusal_count(&self, is_end: bool) {
        let Some(count) = self.visits.unprinted_refusals(is_end) else { return };
        if self.options.transport.json {
            out::json(&json!({ "event": "visits_refused", "count": count }));
        } else {
            out::note(&format!("litz: {count} more senders were refused"));
        }
    }
}
