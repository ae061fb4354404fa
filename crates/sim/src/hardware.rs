//! Modelled hardware. Its parameters are checked when it is built: what cannot be is an error that names the key.
//!
//! | module | what |
//! |---|---|
//! | [`fddi`] | rings with the timed-token rules, an idle rotation costs nothing |

mod config_error;
pub mod fddi;

pub use config_error::ConfigError;
