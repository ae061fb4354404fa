//! What a receiver tells its user of senders that have ended. The sentences of [`TransferError`] and of
//! [`Refusal`] tell the sender what to do.

use serde_json::{Value, json};
use transfer::{Refusal, Summary, TransferError};
use units::ByteSize;

use super::Receiver;
use super::attempt::Attempt;
use crate::cli::serving::authorisation::Admission;
use crate::cli::serving::refusals;
use crate::cli::{exit, out};

impl Receiver<'_> {
    /// Prints that files of a transfer have failed.
    pub(super) fn print_incomplete(&self, attempt: &Attempt, summary: &Summary) {
        let failed = summary.failed;
        let files = if failed == 1 { "1 file was".to_owned() } else { format!("{failed} files were") };
        let valid = if self.options.invitation.is_none() { "; the ticket stays valid" } else { "" };
        let message = format!(
            "{files} not received{valid}: once the cause is removed, send again with the same command. \
             Waiting for the sender; Ctrl-C ends this"
        );
        if self.options.transport.json {
            out::json(&visit_ended(attempt, &message));
        } else {
            exit::report(false, exit::FAILED, &format!("{}: {message}", attempt.peer));
        }
    }

    /// Prints that a sender left before the end, or was refused. Does nothing if its transfer ended
    /// well.
    pub(super) fn print_end(&self, attempt: &Attempt) {
        let Err(error) = &attempt.result else { return };
        let key = attempt.key.fingerprint();
        let bound = match (&self.admission, error) {
            (Admission::Ticket(ticket), TransferError::Refused(Refusal::BoundToAnotherKey)) => ticket.bound(),
            _ => None,
        };
        let bound = bound.map(|key| key.fingerprint().to_string());
        let message = match (error, attempt.closing, &bound) {
            (_, Some(closing), _) if attempt.authorised => closing.note().to_owned(),
            (_, Some(closing), _) => format!("refused {key}: {}", closing.note()),
            (_, _, Some(bound)) => format!("refused {key}: {}", refusals::bound_to(bound)),
            (TransferError::Refused(refusal), ..) => refusals::message(*refusal, &attempt.key),
            _ => ending(error),
        };
        if self.options.transport.json {
            let mut event = visit_ended(attempt, &message);
            if let Some(bound) = bound {
                event["bound_to"] = bound.into();
            }
            out::json(&event);
            return;
        }
        let is_waiting = self.serves_one_transfer() && attempt.authorised && attempt.closing.is_none();
        let waiting = match error {
            TransferError::CancelledByPeer if is_waiting => "; waiting for it to send again",
            error if is_waiting && !error.is_resumable() => "; waiting for another attempt; Ctrl-C ends this",
            _ if is_waiting => "; waiting for the sender to reconnect",
            _ => "",
        };
        let who = if attempt.authorised { attempt.name.clone() } else { attempt.peer.to_string() };
        exit::report(false, exit::FAILED, &format!("{who}: {message}{waiting}"));
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

fn visit_ended(attempt: &Attempt, message: &str) -> Value {
    json!({
        "event": "visit_ended", "peer": attempt.peer.to_string(), "key": attempt.key.to_string(),
        "authorised": attempt.authorised, "message": message,
    })
}

/// How a transfer ended, for the receiver's user.
pub(super) fn ending(error: &TransferError) -> String {
    let size = |bytes: &u64| ByteSize::from_bytes(*bytes);
    match error {
        TransferError::Connection(error) => format!("the connection was lost ({error})"),
        TransferError::CancelledByPeer => "cancelled by the sender".to_owned(),
        TransferError::Peer(reason) => format!("the sender ended the transfer: {reason}"),
        TransferError::TooLarge(bytes, bytes_max) => {
            format!("refused: its {} are more than the {} that --max-size permits", size(bytes), size(bytes_max))
        }
        TransferError::StreamTooLong(bytes_max) => {
            format!("ended: its stream is longer than the {} that --max-size permits", size(bytes_max))
        }
        TransferError::NoRoom(growth, room) => {
            format!("refused: its folder would grow by {}, and --quota leaves {} to it", size(growth), size(room))
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_receivers_user_reads_no_advice_for_the_sender() {
        let lost = io::Error::other("silence");
        for (error, text) in [
            (TransferError::Connection(lost), "the connection was lost (silence)"),
            (TransferError::CancelledByPeer, "cancelled by the sender"),
            (
                TransferError::TooLarge(2000, 1000),
                "refused: its 2.0 kB are more than the 1.0 kB that --max-size permits",
            ),
            (
                TransferError::NoRoom(2000, 1000),
                "refused: its folder would grow by 2.0 kB, and --quota leaves 1.0 kB to it",
            ),
        ] {
            assert_eq!(ending(&error), text);
        }
    }
}
