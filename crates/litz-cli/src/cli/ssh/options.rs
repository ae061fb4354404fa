//! The options about hosts that are reached by ssh.

use std::path::PathBuf;

use clap::Args;

use crate::cli::heading;

#[derive(Args, Debug, Clone)]
pub(crate) struct SshOptions {
    /// Command that reaches the host of HOST:PATH, as with rsync: a program and its arguments, in quotes
    ///
    /// The host and the command to run there are appended. Example: -e 'ssh -p 2222 -i key'.
    #[arg(short = 'e', long, value_name = "COMMAND", default_value = "ssh", overrides_with = "rsh", help_heading = heading::SSH)]
    pub(crate) rsh: String,

    /// The litz command on the host of HOST:PATH, if it is not in the PATH there
    #[arg(long, value_name = "COMMAND", default_value = "litz", overrides_with = "litz_path", help_heading = heading::SSH)]
    pub(crate) litz_path: String,

    /// UDP port on which the receiving end of HOST:PATH listens, for a firewall in which it is open [default: a
    /// free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = heading::SSH)]
    pub(crate) port: Option<u16>,
}

/// The end of the help text of the far end.
pub(crate) const END_HELP: &str = "\
Exit status:
  0    all files are complete and verified
  1    the transfer finished, but some files failed or were skipped
  2    an error: a request that cannot be carried out, no connection, an aborted transfer
  130  interrupted, or not needed any more";

#[derive(Args, Debug)]
pub(crate) struct SshEndOptions {
    /// Folder for keys and tickets [default: litz in XDG_STATE_HOME]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}
