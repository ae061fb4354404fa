//! The examples work. They are compiled into this program, because linking them one by one would
//! take longer than running them.

#[path = "../examples/datagrams.rs"]
mod datagrams;
#[path = "../examples/echo.rs"]
mod echo;
#[path = "../examples/messages.rs"]
mod messages;
#[path = "../examples/multipath.rs"]
mod multipath;
#[path = "../examples/tokio.rs"]
mod on_tokio;

#[test]
fn all_examples_run_to_their_end() {
    for example in [datagrams::main, echo::main, messages::main, multipath::main, on_tokio::main] {
        example().unwrap();
    }
}
