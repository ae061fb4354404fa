//! Receiving from a host that is reached by ssh.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use transfer::{CancelToken, RelativePath};

use super::far_end::{FarEnd, FarError};
use super::invitation::{Invitation, Peer};
use super::message::{Request, SendRequest, SenderOptions};
use crate::cli::args::{Arguments, Command, RecvOptions, SendOptions};
use crate::cli::{exit, host, keep, recv, signals};

/// Runs `litz send HOST:PATH... DIR`: receives what the far host sends.
pub(crate) fn pull(options: &SendOptions, far_host: &str, paths: Vec<PathBuf>, into: &Path) -> ExitCode {
    let json = options.transport.json;
    match prepare(options, far_host, paths, into) {
        Ok((receiving, cancel)) => recv::run_with(&receiving, &cancel),
        Err(FarError::Interrupted) => exit::fail(json, exit::INTERRUPTED, "interrupted before the transfer began"),
        Err(FarError::Failed(message)) => exit::fail(json, exit::FAILED, &message),
    }
}

fn prepare(
    options: &SendOptions,
    far_host: &str,
    paths: Vec<PathBuf>,
    into: &Path,
) -> Result<(RecvOptions, CancelToken), FarError> {
    let unfit = [
        (options.name.is_some(), "--name"),
        (options.credential.by_key, "--by-key"),
        (options.single_path.is_given(), "--bind and --device"),
        (!options.paths.paths.is_empty() || options.paths.limit.is_some(), "--path and --paths"),
    ];
    if let Some((_, name)) = unfit.into_iter().find(|(is_given, _)| *is_given) {
        return Err(format!("{name} is for sending from this host: leave it out for HOST:PATH").into());
    }
    let mut receiving = receive_options(into, options.ssh.port)?;
    receiving.transport = options.transport.clone();
    receiving.update = options.update;
    let filter = options.filter()?;
    // Before the far host is asked for anything.
    recv::check(&receiving)?;
    let roots = roots(&paths)?;
    host::open_state(options.transport.state_dir.as_deref())?;
    let cancel = signals::cancel_token().map_err(|error| format!("cannot handle signals: {error}"))?;
    let end = FarEnd::start(&options.ssh, far_host, &cancel)?;
    end.check_options(options)?;
    let sender = end.key();
    let paths = paths.into_iter().map(PathBuf::into_os_string).collect();
    let peer = Arc::new(FarSender { end, paths, options: sender_options(options) });
    receiving.invitation =
        Some(Invitation { sender, roots: Some(roots), delete: options.delete.then_some(filter), peer });
    Ok((receiving, cancel))
}

/// The options of `litz recv INTO`, that replaces files as scp and rsync do.
fn receive_options(into: &Path, port: Option<u16>) -> Result<RecvOptions, String> {
    let mut arguments: Vec<OsString> = ["litz", "recv", "--overwrite"].map(OsString::from).to_vec();
    arguments.extend(port.map(|port| OsString::from(format!("--listen=:{port}"))));
    arguments.extend(["--".into(), into.into()]);
    match Arguments::parse(arguments) {
        Ok(Arguments { command: Command::Recv(options), .. }) => Ok(options),
        Ok(_) => unreachable!("the arguments name the command"),
        Err(error) => Err(error.to_string()),
    }
}

/// The names under which the paths arrive.
fn roots(paths: &[PathBuf]) -> Result<BTreeSet<RelativePath>, String> {
    let mut roots = BTreeSet::new();
    for path in paths {
        let name = path.file_name().map_or(b"".as_slice(), |name| name.as_bytes());
        let root = RelativePath::from_components([name])
            .map_err(|error| format!("cannot receive {}: {error}", path.display()))?;
        if !roots.insert(root) {
            return Err(format!("two of the paths end in {}: fetch them with a command each", path.display()));
        }
    }
    Ok(roots)
}

fn sender_options(options: &SendOptions) -> SenderOptions {
    SenderOptions {
        rate_bps: options.rate.map(|rate| rate.as_bps()),
        burst_bytes: options.burst.map(|burst| burst.as_bytes()),
        keep: options.keep.map(keep::words),
        parallel: options.parallel,
        congestion: Some(options.transport.congestion.to_string()),
        patterns: options.patterns(),
        retry_for_ms: options.retry_for.as_millis(),
        idle_timeout_ms: options.transport.idle_timeout.as_millis(),
    }
}

/// The far sender.
#[derive(Debug)]
struct FarSender {
    end: FarEnd,
    paths: Vec<OsString>,
    options: SenderOptions,
}

impl Peer for FarSender {
    fn watch(&self) {}

    fn announce(&self, ticket: &str) -> Result<(), String> {
        let (paths, options) = (self.paths.clone(), self.options.clone());
        self.end.request(&Request::Send(SendRequest { paths, ticket: ticket.to_owned(), options }))
    }

    fn has_left(&self) -> bool {
        false
    }

    fn ending(&self, is_idle: bool) -> Option<Result<u8, String>> {
        if !is_idle {
            return None;
        }
        Some(Err(self.end.error().or_else(|| self.end.ending())?))
    }
}
