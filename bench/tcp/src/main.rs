//! Measures one TCP connection between a program on the kernel's sockets and stacks in user space on a
//! TUN device with offload, in both directions, and connections opened and closed. Each stack is a
//! process of its own; all serve the same small protocol, so the kernel's side is the same.
//!
//! ```text
//!   kernel's program ── kernel's TCP ── 10.66.0.1 │ TUN, offload │ 10.66.0.2:5001 ── stack
//! ```
//!
//! | module | content |
//! |---|---|
//! | `compare` | runs the stacks in turn, and writes the result |
//! | `kernel` | the kernel's side |
//! | `serve` | what a stack does with a connection |
//! | `litz`, `smol`, `blind` | the stacks; gVisor's is a program in Go, in `gvisor` |
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program of measurements")]

mod blind;
mod compare;
mod kernel;
mod litz_stack;
mod serve;
mod smol;

use std::net::{IpAddr, Ipv4Addr};

/// The kernel's address and the stack's, and the port that every stack listens to.
pub(crate) const KERNEL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 66, 0, 1));
pub(crate) const STACK: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 66, 0, 2));
pub(crate) const PORT: u16 = 5001;
pub(crate) const DEVICE: &str = "t0";
pub(crate) const MTU: u16 = 1500;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", "litz"] => litz_stack::serve(litz::Placement::Thread),
        ["serve", "litz-inline"] => litz_stack::serve(litz::Placement::Inline),
        ["serve", "smoltcp"] => smol::serve(),
        ["serve", "blind"] => blind::serve(),
        ["serve", "kernel"] => kernel::serve(),
        ["measure", what, seconds, congestion] => kernel::measure(what, seconds.parse().expect("seconds"), congestion),
        ["compare", ref options @ ..] => compare::run(options),
        _ => {
            eprintln!("litz-bench-tcp compare [--seconds N] [--rounds N] [--gvisor PROGRAM] [--stacks A,B]");
            std::process::exit(2);
        }
    }
}
