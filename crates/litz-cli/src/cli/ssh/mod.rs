//! Transfers with a host that is reached by ssh: `litz send PATH... HOST:DIR` and `litz send HOST:PATH... DIR`.
//!
//! ```text
//!  this host                                              HOST
//!  litz send ── ssh HOST litz ssh-end ──▶ sshd ──▶ litz ssh-end
//!     │  ◀── hello: version, public key ─────────────────────┤
//!     ├──── request: what to receive or to send, our key ───▶│
//!     │  ◀── ticket: addresses, fingerprint ─────────────────┤  (or the other way round)
//!     ╞═════ the data: QUIC over all links ═════════════════▶╡
//!     │  ◀── events, the final status ───────────────────────┤
//! ```
//!
//! ssh authenticates both hosts, so each end admits the other's key and no secret is needed. The request
//! is one line of JSON on standard input: no path becomes an option or text of a shell. Either host may
//! be hostile to the other: docs/spec/ssh.md says what each takes.

pub(crate) mod end;
mod far_end;
pub(crate) mod invitation;
mod lines;
mod message;
pub(crate) mod options;
pub(crate) mod place;
pub(crate) mod pull;
pub(crate) mod push;
