//! A channel for the driver's single answer to a request.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use quic::session::ExportError;

use crate::error::{Closed, OpenError};
use driver::sync::{lock, set_waker};

/// The receiving end, held by the caller.
#[derive(Debug)]
pub(crate) struct ReplyReceiver<T>(Arc<Mutex<ReplyState<T>>>);

/// The sending end, held by the driver. If it is dropped without an answer, for example because the
/// driver panics, the caller receives the [default for that case](Unanswered).
#[derive(Debug)]
pub(crate) struct ReplySender<T: Unanswered>(Arc<Mutex<ReplyState<T>>>);

/// The answer that a caller receives if the driver drops its end.
pub(crate) trait Unanswered {
    fn unanswered() -> Self;
}

#[derive(Debug)]
struct ReplyState<T> {
    value: Option<T>,
    answered: bool,
    canceled: bool,
    waker: Option<Waker>,
}

/// Creates a channel for one answer.
pub(crate) fn reply_channel<T: Unanswered>() -> (ReplyReceiver<T>, ReplySender<T>) {
    let state = ReplyState { value: None, answered: false, canceled: false, waker: None };
    let state = Arc::new(Mutex::new(state));
    (ReplyReceiver(Arc::clone(&state)), ReplySender(state))
}

impl<T> ReplyReceiver<T> {
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<T> {
        let mut state = lock(&self.0);
        match state.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                set_waker(&mut state.waker, waker);
                Poll::Pending
            }
        }
    }

    /// Stops waiting. Returns an answer that was sent before.
    pub(crate) fn cancel(&self) -> Option<T> {
        let mut state = lock(&self.0);
        state.canceled = true;
        state.value.take()
    }
}

impl<T: Unanswered> ReplySender<T> {
    pub(crate) fn is_canceled(&self) -> bool {
        lock(&self.0).canceled
    }

    /// Sends the answer. Only the first call has an effect.
    ///
    /// # Errors
    /// Returns the value if an answer was sent before or the caller has stopped waiting.
    pub(crate) fn put(&self, value: T) -> Result<(), T> {
        let mut state = lock(&self.0);
        if std::mem::replace(&mut state.answered, true) || state.canceled {
            return Err(value);
        }
        state.value = Some(value);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl<T: Unanswered> Drop for ReplySender<T> {
    fn drop(&mut self) {
        let _answered_or_canceled = self.put(T::unanswered());
    }
}

impl<T> Unanswered for Option<T> {
    fn unanswered() -> Self {
        None
    }
}

impl<T> Unanswered for Result<T, ExportError> {
    fn unanswered() -> Self {
        Err(ExportError)
    }
}

impl<T> Unanswered for Result<T, OpenError> {
    fn unanswered() -> Self {
        Err(OpenError::ConnectionClosed(Closed::EndpointClosed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::task::Wake;

    use super::*;

    struct ChannelWaker(Sender<()>);

    impl Wake for ChannelWaker {
        fn wake(self: Arc<Self>) {
            self.0.send(()).unwrap();
        }
    }

    #[test]
    fn dropping_the_sender_wakes_the_caller_with_the_default_answer() {
        let (sender, woken) = channel();
        let waker = Waker::from(Arc::new(ChannelWaker(sender)));
        let (reply, answer) = reply_channel::<Option<u32>>();
        assert!(reply.poll(&waker).is_pending());
        drop(answer);
        assert!(woken.try_recv().is_ok());
        assert_eq!(reply.poll(&waker), Poll::Ready(None));
    }

    #[test]
    fn only_the_first_answer_is_kept() {
        let (reply, answer) = reply_channel();
        assert_eq!(answer.put(Some(1)), Ok(()));
        assert_eq!(answer.put(Some(2)), Err(Some(2)));
        drop(answer);
        assert_eq!(reply.poll(Waker::noop()), Poll::Ready(Some(1)));
    }

    #[test]
    fn an_answer_after_cancellation_is_returned_to_the_sender() {
        let (reply, answer) = reply_channel();
        assert_eq!(answer.put(Some(1)), Ok(()));
        assert_eq!(reply.cancel(), Some(Some(1)));
        let (reply, answer) = reply_channel();
        assert_eq!(reply.cancel(), None);
        assert!(answer.is_canceled());
        assert_eq!(answer.put(Some(1)), Err(Some(1)));
    }
}
