//! Ctrl-C and SIGTERM: the first signal ends the command in order, the second at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use transfer::CancelToken;

use super::exit;
use super::standard_streams::watch_interrupt;

/// A token that the first signal cancels. A second signal ends the process.
///
/// # Errors
/// If the signal handlers cannot be installed.
pub(crate) fn cancel_token() -> std::io::Result<CancelToken> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the shutdown handler must read the flag before the same signal sets
        // it.
        flag::register_conditional_shutdown(signal, i32::from(exit::INTERRUPTED), flag.clone())?;
        flag::register(signal, flag.clone())?;
    }
    watch_interrupt(Arc::clone(&flag));
    Ok(CancelToken::from_flag(flag))
}
