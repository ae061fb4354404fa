//! Security layers of a TCP/IP stack: a cipher above TCP, and a digest between TCP and IP. Both are
//! stages: they share no state with a connection, so any processor can run them.
//!
//! ```text
//!   application
//!       │ bytes
//!   cipher    records: header, IV, ciphertext          record, cipher
//!       │ a longer stream of bytes
//!   TCP       the serial step
//!       │ segments
//!   digest    Authentication Header of each packet     digest
//!       │
//!   IP
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`stack`] | [`Stack`]: the layers of a stack, written as `des/tcp/md5/ip`. Start there |
//! | [`secret`] | [`SharedSecret`], from which the keys of all layers are derived |
//! | [`digest`] | [`DigestKey`]: fills and verifies the header of a packet |
//! | [`record`] | the format of records, and [`RecordReader`], which finds them in a stream |
//! | [`cipher`] | [`RecordKey`]: seals and opens records |
//!
//! The formats are specified in `docs/spec/layers.md`.
#![forbid(unsafe_code)]

pub mod cipher;
pub mod digest;
pub mod record;
pub mod secret;
pub mod stack;

pub use cipher::RecordKey;
pub use digest::{DigestError, DigestKey};
pub use record::{Record, RecordError, RecordKind, RecordReader};
pub use secret::SharedSecret;
pub use stack::{CipherLayer, DigestLayer, Stack, StackError};
