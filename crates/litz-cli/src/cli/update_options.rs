//! The options that decide which of the listed files are received.

use clap::Args;

use super::heading;

#[derive(Args, Debug, Clone, Copy, Default)]
pub(crate) struct UpdateOptions {
    /// Replace existing files of the same name, but keep those that are newer than the sender's
    ///
    /// As with rsync, the times of last modification are compared, of files only. With a ticket this is an
    /// option of `litz recv`, because the receiver decides.
    #[arg(short, long, help_heading = heading::FILES)]
    pub(crate) update: bool,

    /// Write nothing and list what would be transferred
    ///
    /// Existing files are compared by size and time, not by content; by size alone if they may not be replaced.
    /// The exit status is that of the transfer if nothing changes until then. With a ticket this is an option of
    /// `litz recv`, whose ticket stays valid.
    #[arg(short = 'n', long, help_heading = heading::FILES)]
    pub(crate) dry_run: bool,
}
