//! The control stream: messages over a bidirectional stream.

use std::io::{Read, Write};

use litz::{RecvStream, SendStream};
use tunnel::Message;
use tunnel::control::FRAME_BYTES_MAX;

/// The control stream of a tunnel.
pub(super) struct Control {
    send: SendStream,
    recv: RecvStream,
}

impl Control {
    pub(super) fn new((send, recv): (SendStream, RecvStream)) -> Self {
        Self { send, recv }
    }

    /// # Errors
    /// A message for the user: the connection has ended.
    pub(super) fn send(&mut self, message: &Message) -> Result<(), String> {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.send.write_all(&frame).map_err(|error| error.to_string())
    }

    /// No more messages follow. Waits until the peer has those before.
    pub(super) fn finish(&mut self) {
        // It fails if the connection has ended: then they are not read.
        let _ended = self.send.finish().and_then(|()| self.send.wait_finished());
    }

    /// The next message of a type that is known.
    ///
    /// # Errors
    /// A message for the user: the connection has ended, or the peer sent something else.
    pub(super) fn receive(&mut self) -> Result<Message, String> {
        loop {
            let mut len = [0; 2];
            self.recv.read_exact(&mut len).map_err(|error| error.to_string())?;
            let len = usize::from(u16::from_be_bytes(len));
            if len > FRAME_BYTES_MAX {
                return Err("the peer sent a message that is too long".to_owned());
            }
            let mut frame = vec![0; len];
            self.recv.read_exact(&mut frame).map_err(|error| error.to_string())?;
            if let Some(message) = Message::decode(&frame).map_err(|error| error.to_string())? {
                return Ok(message);
            }
        }
    }
}
