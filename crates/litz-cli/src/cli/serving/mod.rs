//! What a command needs that waits for authorised hosts: its sockets, and which hosts it admits.
//!
//! | module | contents |
//! |---|---|
//! | [`start`] | the start: begin here |
//! | [`sockets`] | the sockets that it listens on |
//! | [`authorisation`] | by a ticket or by a list of keys |
//! | [`served_ticket`], [`allowed`], [`file_watch`] | the ticket and the list, as their files change |
//! | [`admission`] | which visitors keep their place: the policy |
//! | [`visits`] | their connections |
//! | [`refusals`] | the messages about those that were refused |
//! | [`sandbox`] | the rights that it gives up first |

pub(crate) mod admission;
pub(crate) mod allowed;
pub(crate) mod authorisation;
mod file_watch;
pub(crate) mod refusals;
pub(crate) mod sandbox;
mod served_ticket;
mod sockets;
pub(crate) mod start;
pub(crate) mod visits;
