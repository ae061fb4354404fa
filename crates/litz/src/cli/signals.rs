//! Ctrl-C and termination: the first asks politely, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use litz::transfer::CancelToken;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::exit;

/// A token that the first interrupt sets. A second interrupt ends the process.
///
/// # Errors
/// If the system refuses the handlers.
pub(crate) fn cancel_token() -> std::io::Result<CancelToken> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the shutdown looks at the flag before this very signal sets it.
        flag::register_conditional_shutdown(signal, i32::from(exit::INTERRUPTED), flag.clone())?;
        flag::register(signal, flag.clone())?;
    }
    Ok(CancelToken::from_flag(flag))
}
