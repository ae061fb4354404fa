//! The answer to one question.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use quic::session::ExportError;

use crate::error::{Closed, OpenError};
use crate::sync::{lock, set_waker};

/// Who asked: takes the answer, once.
#[derive(Debug)]
pub(crate) struct Reply<T>(Arc<Mutex<State<T>>>);

/// The driver's half: dropped without an answer, as by a driver that panics, it says [so](Unanswered).
#[derive(Debug)]
pub(crate) struct Answer<T: Unanswered>(Arc<Mutex<State<T>>>);

/// An answer that can say that there is none.
pub(crate) trait Unanswered {
    fn unanswered() -> Self;
}

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    answered: bool,
    abandoned: bool,
    waker: Option<Waker>,
}

/// Both halves of one question.
pub(crate) fn question<T: Unanswered>() -> (Reply<T>, Answer<T>) {
    let state = State { value: None, answered: false, abandoned: false, waker: None };
    let state = Arc::new(Mutex::new(state));
    (Reply(Arc::clone(&state)), Answer(state))
}

impl<T> Reply<T> {
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

    /// Nobody waits any more. What has come meanwhile is handed back.
    pub(crate) fn abandon(&self) -> Option<T> {
        let mut state = lock(&self.0);
        state.abandoned = true;
        state.value.take()
    }
}

impl<T: Unanswered> Answer<T> {
    pub(crate) fn is_abandoned(&self) -> bool {
        lock(&self.0).abandoned
    }

    /// Answers, once.
    ///
    /// # Errors
    /// The value, if nobody waits for it.
    pub(crate) fn put(&self, value: T) -> Result<(), T> {
        let mut state = lock(&self.0);
        if std::mem::replace(&mut state.answered, true) || state.abandoned {
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

impl<T: Unanswered> Drop for Answer<T> {
    fn drop(&mut self) {
        let _answered_or_abandoned = self.put(T::unanswered());
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

    struct Bell(Sender<()>);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.send(()).unwrap();
        }
    }

    #[test]
    fn a_driver_that_goes_without_an_answer_says_so() {
        let (sender, woken) = channel();
        let waker = Waker::from(Arc::new(Bell(sender)));
        let (reply, answer) = question::<Option<u32>>();
        assert!(reply.poll(&waker).is_pending());
        drop(answer);
        assert!(woken.try_recv().is_ok());
        assert_eq!(reply.poll(&waker), Poll::Ready(None));
    }

    #[test]
    fn an_answer_is_given_once_and_stays() {
        let (reply, answer) = question();
        assert_eq!(answer.put(Some(1)), Ok(()));
        assert_eq!(answer.put(Some(2)), Err(Some(2)));
        drop(answer);
        assert_eq!(reply.poll(Waker::noop()), Poll::Ready(Some(1)));
    }

    #[test]
    fn an_answer_that_nobody_takes_comes_back() {
        let (reply, answer) = question();
        assert_eq!(answer.put(Some(1)), Ok(()));
        assert_eq!(reply.abandon(), Some(Some(1)));
        let (reply, answer) = question();
        assert_eq!(reply.abandon(), None);
        assert!(answer.is_abandoned());
        assert_eq!(answer.put(Some(1)), Err(Some(1)));
    }
}
