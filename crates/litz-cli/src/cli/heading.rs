//! The headings under which the help lists options.

/// Which files are transferred, and how they are stored.
pub(crate) const FILES: &str = "Files";
/// Tickets and keys.
pub(crate) const SECURITY: &str = "Tickets and keys";
/// Addresses, paths and the data on them.
pub(crate) const PATHS: &str = "Paths and scheduling";
/// Which packets a tunnel carries, and how.
pub(crate) const TUNNEL: &str = "Tunnel";
/// The network device of a TCP/IP stack.
pub(crate) const DEVICE: &str = "Device";
/// A tunnel without a network device.
pub(crate) const USERSPACE: &str = "Without a network device";
/// Hosts that are reached by ssh.
pub(crate) const SSH: &str = "Hosts by ssh";
/// Settings of the connection.
pub(crate) const PROTOCOL: &str = "Protocol";
/// The machine that is measured, predicted or simulated.
pub(crate) const MACHINE: &str = "Machine";
/// Number and length of the runs.
pub(crate) const MEASURED: &str = "Runs";
/// Traces and journals.
pub(crate) const RECORDING: &str = "Recording";
/// Results and progress.
pub(crate) const OUTPUT: &str = "Output";
