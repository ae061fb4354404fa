//! A stack with a port that others connect to.

use std::ops::Deref;

use litz::tcp::{Closed, Listen, TcpListener, TcpStack, TcpStackConfig, TcpStream};

/// A stack with a listening port.
#[derive(Clone)]
pub(crate) struct Listening {
    stack: TcpStack,
    pub(crate) listener: TcpListener,
}

impl Deref for Listening {
    type Target = TcpStack;

    fn deref(&self) -> &TcpStack {
        &self.stack
    }
}

impl Listening {
    /// Returns a stack that listens on port 80.
    pub(crate) fn start(config: TcpStackConfig) -> Self {
        Self::start_with(config, 80, Listen::default())
    }

    /// Returns a stack that listens on `port` within these bounds.
    pub(crate) fn start_with(config: TcpStackConfig, port: u16, bounds: Listen) -> Self {
        let stack = TcpStack::start(config).expect("a stack");
        let listener = stack.listen_with(port, bounds).expect("the port is free");
        Self { stack, listener }
    }

    pub(crate) fn accept(&self) -> Result<TcpStream, Closed> {
        self.listener.accept()
    }
}
