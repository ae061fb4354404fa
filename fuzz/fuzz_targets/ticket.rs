//! A ticket as a user pastes it: what is accepted is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transfer::Ticket;

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    if let Ok(ticket) = text.parse::<Ticket>() {
        let again = ticket.to_text().expect("a ticket that was read can be written");
        assert_eq!(again.parse::<Ticket>().expect("and read again"), ticket);
    }
});
