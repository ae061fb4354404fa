//! `litz tcp send` and `litz tcp receive`: one stream over several connections, with a stack and a device
//! each.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use litz::tcp::replicated::{ReplicatedError, ReplicatedReceiver, ReplicatedSender, Scheduling};

use super::device::Recorded;
use super::options::StackOptions;
use super::{device, parse_remote};
use crate::cli::standard_streams::{StandardInput, StandardOutput};
use crate::cli::{exit, heading, out};

/// Bytes read from standard input at a time.
const CHUNK: usize = 256 << 10;

/// Retransmission timeouts in a row after which a channel is dead: some seconds after its line is.
const TIMEOUTS_MAX: u32 = 5;

#[derive(Args, Debug)]
pub(super) struct SendOptions {
    /// Address and port of each stack of the receiver, in the order of the channels
    #[arg(value_name = "ADDRESS:PORT", required = true, value_parser = parse_remote)]
    remotes: Vec<SocketAddr>,

    /// Which channel carries the next chunk: first-come, round-robin or adaptive
    #[arg(long, value_name = "NAME", default_value_t, help_heading = heading::PROTOCOL)]
    scheduling: Scheduling,

    #[command(flatten)]
    stack: StackOptions,
}

#[derive(Args, Debug)]
pub(super) struct ReceiveOptions {
    /// Port that each stack listens on
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    #[command(flatten)]
    stack: StackOptions,
}

/// Why a stream has ended early.
enum Failure {
    Stream(String),
    Local(String),
}

fn exit_code(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(Failure::Stream(message)) => exit::fail(false, exit::INCOMPLETE, &message),
        Err(Failure::Local(message)) => exit::fail(false, exit::FAILED, &message),
    }
}

/// A stack for each address, on a device of its own.
fn start(options: &StackOptions) -> Result<Vec<Recorded>, Failure> {
    device::start_each(options, TIMEOUTS_MAX).map_err(Failure::Local)
}

pub(super) fn send(options: &SendOptions) -> ExitCode {
    exit_code(try_send(options))
}

fn try_send(options: &SendOptions) -> Result<(), Failure> {
    let (channels, stacks) = (options.remotes.len(), options.stack.address.len());
    if channels > stacks {
        let message =
            format!("{channels} channels need as many stacks (--kernel and --address), and there are {stacks}");
        return Err(Failure::Local(message));
    }
    let stacks = start(&options.stack)?;
    let mut streams = Vec::with_capacity(channels);
    for (stack, remote) in stacks.iter().zip(&options.remotes) {
        streams.push(stack.connect(*remote).map_err(Failure::Stream)?);
    }
    let failed = |error: ReplicatedError| Failure::Stream(options.stack.layers.explain(error.to_string()));
    let mut sender = ReplicatedSender::begin(streams, options.scheduling).map_err(failed)?;
    let mut input = StandardInput;
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = input.read(&mut buffer).map_err(|error| Failure::Local(format!("cannot read: {error}")))?;
        if count == 0 {
            break;
        }
        sender.write(Bytes::copy_from_slice(&buffer[..count])).map_err(failed)?;
    }
    sender.finish().map_err(failed)?;
    let living = sender.living_channels();
    if living < channels {
        out::note(&format!("{} of {channels} channels have died on the way", channels - living));
    }
    Ok(())
}

pub(super) fn receive(options: &ReceiveOptions) -> ExitCode {
    exit_code(try_receive(options))
}

fn try_receive(options: &ReceiveOptions) -> Result<(), Failure> {
    let stacks = start(&options.stack)?;
    let listen = |stack: &Recorded| stack.listen(options.port).map_err(|error| Failure::Local(error.to_string()));
    let listeners = stacks.iter().map(listen).collect::<Result<Vec<_>, _>>()?;
    for address in &options.stack.address {
        out::note(&format!("listening on {}", SocketAddr::new(*address, options.port)));
    }
    let mut streams = Vec::with_capacity(stacks.len());
    for (stack, listener) in stacks.iter().zip(&listeners) {
        streams.push(stack.accept(listener).map_err(Failure::Stream)?);
    }
    let failed = |error: ReplicatedError| Failure::Stream(options.stack.layers.explain(error.to_string()));
    let mut receiver = ReplicatedReceiver::begin(streams).map_err(failed)?;
    let mut output = StandardOutput;
    let cannot_write = |error: io::Error| Failure::Local(format!("cannot write: {error}"));
    while let Some(bytes) = receiver.read().map_err(failed)? {
        output.write_all(&bytes).map_err(cannot_write)?;
    }
    output.flush().map_err(cannot_write)
}
