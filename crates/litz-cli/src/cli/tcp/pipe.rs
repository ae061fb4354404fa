//! `litz tcp listen` and `litz tcp connect`: a connection between standard input and output.

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use litz::tcp::{Closed, TcpStream, WriteError};

use super::device::{self, Recorded};
use super::options::StackOptions;
use crate::cli::standard_streams::{StandardInput, StandardOutput};
use crate::cli::{exit, out};

/// A connection was refused, reset or timed out.
const NOT_CONNECTED: u8 = exit::INCOMPLETE;

/// Bytes read from standard input at a time.
const CHUNK: usize = 64 << 10;

pub(super) fn listen(options: &StackOptions, port: u16) -> ExitCode {
    let listening = device::start(options).and_then(|stack| {
        let listener = stack.listen(port).map_err(|error| error.to_string())?;
        Ok((stack, listener))
    });
    let (stack, listener) = match listening {
        Ok(listening) => listening,
        Err(message) => return exit::fail(false, exit::FAILED, &message),
    };
    for address in &options.address {
        out::note(&format!("listening on {}", SocketAddr::new(*address, port)));
    }
    match stack.accept(&listener) {
        Ok(stream) => {
            out::note(&format!("a connection from {}", stream.peer_addr()));
            carry(&stack, stream)
        }
        Err(message) => exit::fail(false, NOT_CONNECTED, &message),
    }
}

pub(super) fn connect(options: &StackOptions, remote: SocketAddr) -> ExitCode {
    let stack = match device::start(options) {
        Ok(stack) => stack,
        Err(message) => return exit::fail(false, exit::FAILED, &message),
    };
    match stack.connect(remote) {
        Ok(stream) => carry(&stack, stream),
        Err(message) => exit::fail(false, NOT_CONNECTED, &message),
    }
}

/// Why carrying has ended early.
#[derive(Debug, Clone)]
enum Failure {
    Connection(Closed),
    Local(String),
}

/// Carries data both ways until both have ended.
#[expect(clippy::disallowed_methods, reason = "standard input is read by a thread that may never return")]
fn carry(stack: &Recorded, stream: TcpStream) -> ExitCode {
    let stream = Arc::new(stream);
    let failure = Arc::new(OnceLock::new());
    let sender = {
        let (stream, failure) = (Arc::clone(&stream), Arc::clone(&failure));
        std::thread::spawn(move || {
            if let Err(error) = send(&stream) {
                // The first failure counts. The reset ends the other direction.
                let _later = failure.set(error);
                stream.reset();
            }
        })
    };
    match receive(&stream) {
        // A sender that has panicked has printed why.
        Ok(()) => drop(sender.join()),
        Err(error) => {
            let _later = failure.set(error);
            stream.reset();
            // The sender may wait for standard input for ever.
        }
    }
    match failure.get() {
        None => {
            stream.closed();
            ExitCode::from(exit::DONE)
        }
        Some(Failure::Connection(closed)) => exit::fail(false, NOT_CONNECTED, &stack.explain(closed.to_string())),
        Some(Failure::Local(message)) => exit::fail(false, exit::FAILED, message),
    }
}

fn send(stream: &TcpStream) -> Result<(), Failure> {
    let mut input = StandardInput;
    let mut memory = BytesMut::new();
    loop {
        memory.resize(CHUNK, 0);
        let count =
            input.read(&mut memory).map_err(|error| Failure::Local(format!("cannot read standard input: {error}")))?;
        if count == 0 {
            stream.finish();
            return Ok(());
        }
        let chunk: Bytes = memory.split_to(count).freeze();
        match stream.write_chunk(chunk) {
            Ok(()) => {}
            Err(WriteError::Closed(closed)) => return Err(Failure::Connection(closed)),
            Err(error) => return Err(Failure::Local(error.to_string())),
        }
    }
}

fn receive(stream: &TcpStream) -> Result<(), Failure> {
    let fails = |error| Failure::Local(format!("cannot write standard output: {error}"));
    let mut output = StandardOutput;
    while let Some(chunk) = stream.read_chunk().map_err(Failure::Connection)? {
        output.write_all(&chunk).map_err(fails)?;
    }
    // The program behind the pipe reads the end now, while standard input may still be open.
    let nothing = File::options().write(true).open("/dev/null").map_err(fails)?;
    rustix::stdio::dup2_stdout(nothing).map_err(|error| fails(error.into()))
}
