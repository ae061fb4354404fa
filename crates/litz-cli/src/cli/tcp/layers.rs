//! The security layers of the stack, and what a connection with them that fails may mean.

use std::path::{Path, PathBuf};

use clap::Args;
use credentials::private_file;
use litz::tcp::{Layers, SharedSecret, Stack};

use crate::cli::{heading, out};

/// Bytes of a secret.
const SECRET_LEN: usize = 32;

#[derive(Args, Debug, Clone)]
pub(super) struct LayerOptions {
    /// Security layers above and below TCP, from above: aes128/tcp/blake3/ip, chacha20/tcp/blake3/ip,
    /// tcp/blake3/ip
    ///
    /// The peer is another stack of Litz with the same layers and the same secret.
    #[arg(long, value_name = "STACK", default_value_t, help_heading = heading::PROTOCOL)]
    stack: Stack,

    /// File with the secret of both stacks: 32 random bytes, as from `head -c 32 /dev/urandom`
    #[arg(long, value_name = "FILE", help_heading = heading::PROTOCOL)]
    secret_file: Option<PathBuf>,
}

impl LayerOptions {
    /// Whether there are layers.
    pub(super) fn has_any(&self) -> bool {
        !self.stack.is_plain()
    }

    /// The layers, if there are any.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn layers(&self) -> Result<Option<Layers>, String> {
        match (&self.secret_file, self.has_any()) {
            (None, false) => Ok(None),
            (None, true) => {
                Err(format!("{} needs a secret that both stacks have: give its file with --secret-file", self.stack))
            }
            (Some(_), false) => Err("--secret-file is for security layers: name them with --stack".to_owned()),
            (Some(path), true) => Ok(Some(Layers::new(self.stack, read_secret(path)?))),
        }
    }

    /// Adds to the message of a connection that has failed what may be its cause.
    pub(super) fn explain(&self, message: String) -> String {
        match self.has_any() {
            false => message,
            true => format!("{message}; the peer must have the stack {} and the same secret", self.stack),
        }
    }
}

fn read_secret(path: &Path) -> Result<SharedSecret, String> {
    let name = path.display();
    let read = private_file::read_bounded(path, SECRET_LEN as u64);
    let wrong_len = || format!("{name} has no secret of {SECRET_LEN} bytes: make one with head -c 32 /dev/urandom");
    let (bytes, is_open_to_others) = read.map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => wrong_len(),
        _ => format!("cannot read the secret {name}: {error}"),
    })?;
    if is_open_to_others {
        out::note(&format!("note: other users can read {name}: change that with chmod 600 {name}"));
    }
    Ok(SharedSecret::new(bytes.try_into().map_err(|_| wrong_len())?))
}
