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
pub enum Current {
    /// No connection, but it tries to make one. Why there is none, if that is known.
    Away(Option<String>),
    /// This one.
    Here(Arc<Session>),
    /// No connection, and there will be none, for this reason.
    Over(String),
}

/// Where connections go.
pub enum Sessions {
    /// Over the connection that the client has now.
    Current(watch::Receiver<Current>),
    /// Over this one.
    One(Arc<Session>),
}

/// Why there is no connection to the other end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoSession {
    /// There is none yet.
    #[error("there is no connection to the server")]
    Unconnected,
    /// The last attempt failed, for this reason.
    #[error("there is no connection to the server: {0}")]
    Away(String),
    /// There will be none, for this reason.
    #[error("the server was given up: {0}")]
    GivenUp(String),
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
    pub fn current(&self) -> Current {
        match self {
            Self::One(session) => Current::Here(Arc::clone(session)),
            Self::Current(current) => current.borrow().clone(),
        }
    }

    /// The connection to the other end, if there is one.
    pub fn now(&self) -> Option<Arc<Session>> {
        self.current().session()
    }

    /// Whether there will be no connection any more.
    pub fn is_over(&self) -> bool {
        matches!(self.current(), Current::Over(_))
    }

    /// The connection to the other end, as soon as there is one.
    ///
    /// # Errors
    /// Why there is none, if it is away for too long or will not come back.
    pub async fn get(&self) -> Result<Arc<Session>, NoSession> {
        if let Self::Current(current) = self {
            let mut current = current.clone();
            // In any case the reason is told then.
            let _is_known = timeout(SESSION_TIME, current.wait_for(|now| !now.is_away())).await.is_ok();
        }
        match self.current() {
            Current::Here(session) => Ok(session),
            Current::Away(None) => Err(NoSession::Unconnected),
            Current::Away(Some(why)) => Err(NoSession::Away(why)),
            Current::Over(why) => Err(NoSession::GivenUp(why)),
        }
    }

    /// The connection to the other end after `failed`: another one as soon as there is one, or after this time
    /// the same one, if it is still there. `None` if there will be none.
    pub async fn next(&self, failed: &Arc<Session>, within: Duration) -> Option<Arc<Session>> {
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
