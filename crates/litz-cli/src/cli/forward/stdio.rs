//! Standard input and output as one forwarded connection.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::mpsc;
use std::time::Duration;

use bytes::BytesMut;
use forwarding::carry::RESET;
use forwarding::session::Streams;
use litz::{Connection, RecvStream, SendStream};
use transfer::CancelToken;

use crate::cli::standard_streams::{StandardInput, StandardOutput};

/// Bytes read from standard input at a time.
const CHUNK: usize = 64 << 10;

/// How often the command looks for an interrupt.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How it ended.
pub(super) enum End {
    /// Both directions have.
    InOrder,
    /// By the user.
    Interrupted,
}

/// Carries data both ways until both have ended.
///
/// # Errors
/// Why it ended early, for the user.
#[expect(clippy::disallowed_methods, reason = "standard input is read by a thread that may never return")]
pub(super) fn carry(connection: &Connection, (send, recv): Streams, cancel: &CancelToken) -> Result<End, String> {
    let (ended, ends) = mpsc::channel();
    let ended_too = ended.clone();
    std::thread::spawn(move || {
        // The receiver has gone if the command ends.
        let _told = ended.send(read_input(send));
    });
    std::thread::spawn(move || {
        let _told = ended_too.send(write_output(recv));
    });
    let mut left = 2;
    while left > 0 {
        match ends.recv_timeout(LOOK_INTERVAL) {
            Ok(Ok(())) => left -= 1,
            Ok(Err(error)) => return Err(connection.close_reason().map_or(error, |closed| closed.to_string())),
            Err(mpsc::RecvTimeoutError::Timeout) if cancel.is_cancelled() => return Ok(End::Interrupted),
            // The thread that waits for standard input does not notice it.
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if let Some(closed) = connection.close_reason() {
                    return Err(closed.to_string());
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err("a thread of this command ended early".to_owned()),
        }
    }
    Ok(End::InOrder)
}

/// Sends standard input. Returns when the far side has everything.
fn read_input(mut stream: SendStream) -> Result<(), String> {
    let mut input = StandardInput;
    let mut memory = BytesMut::new();
    loop {
        if memory.len() < CHUNK / 4 {
            memory = BytesMut::zeroed(CHUNK);
        }
        let count = match input.read(&mut memory) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => {
                stream.reset(RESET);
                return Err(format!("cannot read standard input: {error}"));
            }
        };
        stream.write_chunk(memory.split_to(count).freeze()).map_err(|error| error.to_string())?;
    }
    stream.finish().map_err(|error| error.to_string())?;
    stream.wait_finished().map_err(|error| error.to_string())
}

/// Writes what arrives to standard output.
fn write_output(mut stream: RecvStream) -> Result<(), String> {
    let fails = |error: io::Error| format!("cannot write to standard output: {error}");
    let mut output = StandardOutput;
    while let Some(chunk) = stream.read_strided().map_err(|error| error.to_string())? {
        for piece in chunk.pieces() {
            if let Err(error) = output.write_all(piece) {
                stream.stop(RESET);
                return Err(fails(error));
            }
        }
    }
    // The program behind the pipe reads the end now, while standard input may still be open.
    let nothing = File::options().write(true).open("/dev/null").map_err(fails)?;
    rustix::stdio::dup2_stdout(nothing).map_err(|error| fails(error.into()))
}
