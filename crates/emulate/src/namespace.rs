//! Network namespaces.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip` keeps the namespaces that it names.
const FOLDER: &str = "/run/netns";

/// A network namespace of our own. Dropping it removes it, and with it whatever is inside.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace, which is empty but for the loopback device. Needs root and the command `ip`.
    ///
    /// # Errors
    /// What `ip` says: above all that there is one of this name.
    pub fn create(name: &str) -> io::Result<Self> {
        ip(None, &["netns", "add", name])?;
        let namespace = Self { name: name.to_owned() };
        ip(Some(name), &["link", "set", "dev", "lo", "up"])?;
        Ok(namespace)
    }

    /// Makes two namespaces, named `prefix`, the number of this process, a number that nobody has, and `a` or `b`. What is
    /// there already is left alone: a process that was killed leaves its namespaces behind, and another one may come to
    /// its number.
    ///
    /// # Errors
    /// As [`create`](Self::create); then neither is there.
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

    /// What `ip netns` calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `action` on a new thread inside. A socket that it opens stays in the namespace, wherever it is used later.
    ///
    /// # Errors
    /// If the thread cannot be started or may not enter; then nothing has run.
    pub fn run<T: Send + 'static>(
        &self,
        action: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<io::Result<T>>> {
        let file = File::open(format!("{FOLDER}/{}", self.name))?;
        let inside = move || {
            // The thread alone enters.
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
            tracing::warn!(%error, namespace = self.name, "a network namespace is left behind");
        }
    }
}

/// Runs the command `ip` with `arguments` in a namespace; what it says.
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
