//! Network namespaces.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Folder of the named namespaces of `ip`.
const FOLDER: &str = "/run/netns";

/// A network namespace created by this process. Dropping it removes the namespace with everything
/// in it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace with only a loopback device. Needs root and the command `ip`.
    ///
    /// # Errors
    /// Returns the error message of `ip`, for example if the name is already used.
    pub fn create(name: &str) -> io::Result<Self> {
        ip(None, &["netns", "add", name])?;
        let namespace = Self { name: name.to_owned() };
        ip(Some(name), &["link", "set", "dev", "lo", "up"])?;
        Ok(namespace)
    }

    /// Creates two namespaces. Their names consist of `prefix`, the process ID, an unused number,
    /// and `a` or `b`. Existing namespaces are not touched: a killed process leaves its namespaces
    /// behind, and its process ID may be reused.
    ///
    /// # Errors
    /// Same errors as [`create`](Self::create); neither namespace exists then.
    pub fn create_pair(prefix: &str) -> io::Result<[Self; 2]> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let names = ["a", "b"].map(|side| format!("{prefix}-{}-{number}-{side}", std::process::id()));
            if !names.iter().any(|name| Path::new(FOLDER).join(name).exists()) {
                return Ok([Self::create(&names[0])?, Self::create(&names[1])?]);
            }
        }
    }

    /// Returns the name in `ip netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `action` on a new thread inside the namespace. Sockets that it opens stay in the
    /// namespace, wherever they are used later.
    ///
    /// # Errors
    /// Fails if the thread cannot be started or cannot enter the namespace; `action` has not run
    /// then.
    pub fn run<T: Send + 'static>(
        &self,
        action: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<io::Result<T>>> {
        let file = File::open(format!("{FOLDER}/{}", self.name))?;
        let inside = move || {
            // Only this thread enters the namespace.
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(action())
        };
        #[expect(clippy::disallowed_methods, reason = "a namespace is entered by threads; the caller joins it")]
        std::thread::Builder::new().name("litz-netns".into()).spawn(inside)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = ip(None, &["netns", "delete", &self.name]) {
            tracing::warn!(%error, namespace = self.name, "cannot remove a network namespace");
        }
    }
}

/// Runs the command `ip` with `arguments` in a namespace and returns its output.
pub(crate) fn ip(namespace: Option<&str>, arguments: &[&str]) -> io::Result<String> {
    let mut command = Command::new("ip");
    if let Some(name) = namespace {
        command.args(["-netns", name]);
    }
    let output = command.args(arguments).stdin(Stdio::null()).output().map_err(|error| {
        let advice = if error.kind() == io::ErrorKind::NotFound { " (it is in the package iproute2)" } else { "" };
        io::Error::new(error.kind(), format!("cannot run the command ip: {error}{advice}"))
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let place = namespace.map(|name| format!(" in namespace {name}")).unwrap_or_default();
    Err(io::Error::other(format!("`ip {}`{place}: {}", arguments.join(" "), said.trim())))
}
