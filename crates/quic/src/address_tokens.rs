//! Tokens of NEW_TOKEN frames: with one, a later connection of the same client begins with a validated
//! address (RFC 9000, section 8.1.3).
//!
//! ```text
//!  server: IssuedTokens ── NEW_TOKEN ──▶ client: ReceivedTokens ─▶ TokenMemory
//!                                                                      │ next connection
//!  server: TokenKeeper  ◀── Initial packets ───────────────────────────┘
//! ```
//!
//! The tokens of Retry packets are in `endpoint/tokens.rs`.

pub(crate) mod issue;
pub(crate) mod memory;
pub(crate) mod sealed;

pub use memory::{SERVERS_MAX, ServerId, TOKEN_LEN_MAX, TOKENS_PER_SERVER_MAX, TokenMemory};
