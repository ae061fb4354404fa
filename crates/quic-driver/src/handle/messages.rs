//! Messages of a connection, each on a unidirectional stream of its own.

use std::task::{Poll, Waker};

use bytes::Bytes;
use quic::Class;

use super::{ConnectionHandle, Runtime};
use crate::cells::connection::{Interest, MessageMode};
use crate::cells::message_queue::OutgoingMessage;
use crate::error::{Closed, MessageError};

impl<R: Runtime> ConnectionHandle<R> {
    /// Queues a message for sending. When the call is ready, `message` has been taken; otherwise
    /// the queue is full.
    pub fn poll_send_message(&self, message: &mut Option<Bytes>, waker: &Waker) -> Poll<Result<(), MessageError>> {
        self.poll_send_message_as(message, &Class::default(), waker)
    }

    /// Queues a message like [`poll_send_message`](Self::poll_send_message), with the class of
    /// service of its stream. Messages of a higher priority are sent first, even if they are queued
    /// later, and have separate queue space.
    pub fn poll_send_message_as(
        &self,
        message: &mut Option<Bytes>,
        class: &Class,
        waker: &Waker,
    ) -> Poll<Result<(), MessageError>> {
        let Some(taken) = message.take() else { return Poll::Ready(Ok(())) };
        let len_max = self.cell().shared.limits.message_len_max;
        if taken.len() > len_max {
            return Poll::Ready(Err(MessageError::TooLong { len_max }));
        }
        let mut left = Some(OutgoingMessage { bytes: taken, class: class.clone() });
        let submitted = self.submit(|state| {
            state.messages_out.put(&mut left);
            if left.is_some() {
                state.add_waker(Interest::MessageSpace, waker);
            }
        });
        if let Err(closed) = submitted {
            return Poll::Ready(Err(MessageError::ConnectionClosed(closed)));
        }
        *message = left.map(|message| message.bytes);
        if message.is_some() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Returns ready when the peer has acknowledged or refused every message queued so far.
    pub fn poll_messages_flushed(&self, waker: &Waker) -> Poll<Result<(), Closed>> {
        let mut state = self.cell().lock();
        if state.messages_out.is_empty() && state.messages_in_flight == 0 {
            return Poll::Ready(Ok(()));
        }
        if let Some(closed) = &state.closed {
            return Poll::Ready(Err(closed.clone()));
        }
        state.add_waker(Interest::MessagesFlushed, waker);
        Poll::Pending
    }

    /// Returns the next complete message. The first call decides that the peer's unidirectional
    /// streams are messages.
    pub fn poll_recv_message(&self, waker: &Waker) -> Poll<Result<Bytes, MessageError>> {
        if let Err(closed) = self.decide(MessageMode::Messages) {
            return Poll::Ready(Err(closed.map_or(MessageError::StreamMode, MessageError::ConnectionClosed)));
        }
        let (message, refill) = {
            let mut state = self.cell().lock();
            match (state.take_message(), &state.closed) {
                (Some(taken), _) => taken,
                (None, Some(closed)) => {
                    let closed = closed.clone();
                    let message = state.take_message_after_close(self.cell().shared.limits.message_len_max);
                    return Poll::Ready(message.ok_or(MessageError::ConnectionClosed(closed)));
                }
                (None, None) => {
                    state.add_waker(Interest::Message, waker);
                    return Poll::Pending;
                }
            }
        };
        self.refill(refill);
        Poll::Ready(Ok(message))
    }
}
