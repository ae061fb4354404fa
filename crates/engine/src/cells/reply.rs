//! The answer to one question.

use std::sync::Mutex;
use std::task::{Poll, Waker};

use crate::sync::{lock, set_waker};

/// Filled once by the driver, taken once by who asked; either side may have gone.
#[derive(Debug)]
pub(crate) struct Reply<T>(Mutex<State<T>>);

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    abandoned: bool,
    waker: Option<Waker>,
}

impl<T> Reply<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State { value: None, abandoned: false, waker: None }))
    }

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

    pub(crate) fn is_abandoned(&self) -> bool {
        lock(&self.0).abandoned
    }

    /// Answers.
    ///
    /// # Errors
    /// The value, if nobody waits for it.
    pub(crate) fn put(&self, value: T) -> Result<(), T> {
        let mut state = lock(&self.0);
        if state.abandoned {
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
