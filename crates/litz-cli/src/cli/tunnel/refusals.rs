//! Why a server refuses a client, for the users of both.

use litz::identity::PublicKey;
use transfer::Refusal;

/// The server has a ticket, and the client sent no proof that it has it.
pub(super) const NO_PROOF: &str = "the server wants the secret of its ticket: leave --by-key out";

/// The ticket does not admit the client.
pub(super) fn of_ticket(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Expired => "the ticket has expired: ask for a new one",
        Refusal::BoundToAnotherKey => {
            "the ticket belongs to another host, the first that used it: ask for a new one (`litz tunnel serve \
             --new-ticket`), or run `litz tunnel up` on the same host and as the same user as before"
        }
        Refusal::Unavailable => "the server cannot read or write its own state: see its messages",
        _ => "the server knows no such ticket, which may be revoked, or issued for another device: ask for a new one",
    }
}

/// The list of keys does not have the client's.
pub(super) fn not_listed(key: &PublicKey, has_proof: bool) -> String {
    let by_key = if has_proof { ", and use --by-key instead of a ticket's secret" } else { "" };
    format!("have this line, which `litz id` prints on the client, added to the server's list of keys{by_key}: {key}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_refusal_of_a_tunnel_speaks_of_transfers() {
        let refusals = (0..=u8::MAX).map(Refusal::from_code);
        let texts: Vec<String> = refusals.map(|refusal| of_ticket(refusal).to_owned()).collect();
        let key = PublicKey::from_bytes([1; 32]);
        let listed = [NO_PROOF.to_owned(), not_listed(&key, true), not_listed(&key, false)];
        for text in texts.iter().chain(&listed) {
            for word in ["receiver", "sender", "transfer", "recv", "send "] {
                assert!(!text.contains(word), "{text}");
            }
        }
        assert!(not_listed(&key, true).contains("use --by-key") && !not_listed(&key, false).contains("--by-key"));
    }
}
