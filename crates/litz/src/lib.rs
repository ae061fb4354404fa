//! One connection over every link and every core, each strand encrypted.

pub mod identity;
pub mod transfer;
