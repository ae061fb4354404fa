//! The connection to the other end, as listeners and programs see it: it may be away, and come back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::session::Session;

/// The time that a new connection waits for the client to reconnect.
const SESSION_TIME: Duration = Duration::from_secs(10);

/// What a client has now.
#[derive(Clone)]
pub(super) enum Current {
    /// No connection, but it tries to make one. Why there is none, if that is known.
    Away(Option<String>),
    Here(Arc<Session>),
    /// No connection, and there will be none, for this reason.
    Over(String),
}

/// Where connections go.
pub(super) enum Sessions {
    /// Over the connection that the client has now.
    Current(watch::Receiver<Current>),
    /// Over this one.
    One(Arc<Session>),
}

impl Current {
    fn session(&self) -> Option<Arc<Session>> {
        if let Self::Here(session) = self { Some(Arc::clone(session)) } else { None }
    }

    const fn is_away(&self) -> bool {
        matches!(self, Self::Away(_))
    }
}

impl Sessions {
    /// What there is now.
    pub(super) fn current(&self) -> Current {
        match self {
            Self::One(session) => Current::Here(Arc::clone(session)),
            Self::Current(current) => current.borrow().clone(),
        }
    }

    /// The connection to the other end, if there is one.
    pub(super) fn now(&self) -> Option<Arc<Session>> {
        self.current().session()
    }

    /// Whether there will be no connection any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.current(), Current::Over(_))
    }

    /// The connection to the other end, as soon as there is one.
    ///
    /// # Errors
    /// Why there is none, if it is away for too long or will not come back.
    pub(super) async fn get(&self) -> Result<Arc<Session>, String> {
        if let Self::Current(current) = self {
            let mut current = current.clone();
            // In any case the reason is told then.
            let _is_known = timeout(SESSION_TIME, current.wait_for(|now| !now.is_away())).await.is_ok();
        }
        match self.current() {
            Current::Here(session) => Ok(session),
            Current::Away(None) => Err("there is no connection to the server".to_owned()),
            Current::Away(Some(why)) => Err(format!("there is no connection to the server: {why}")),
            Current::Over(why) => Err(format!("the server was given up: {why}")),
        }
    }

    /// The connection to the other end after `failed`: another one as soon as there is one, or after this time
    /// the same one, if it is still there. `None` if there will be none.
    pub(super) async fn next(&self, failed: &Arc<Session>, within: Duration) -> Option<Arc<Session>> {
        match self {
            Self::One(session) => {
                tokio::time::sleep(within).await;
                Some(Arc::clone(session))
            }
            Self::Current(current) => {
                let mut current = current.clone();
                let is_failed = |now: &Current| now.session().is_some_and(|session| Arc::ptr_eq(&session, failed));
                let is_another = |now: &Current| !now.is_away() && !is_failed(now);
                if timeout(within, current.wait_for(is_another)).await.is_err() {
                    // It fails if the client has ended.
                    let _is_known = current.wait_for(|now| !now.is_away()).await.is_ok();
                }
                current.borrow().session()
            }
        }
    }
}
