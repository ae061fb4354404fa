//! Which of a daemon's servers a request goes to: the first one with a rule for it.

use std::net::IpAddr;
use std::sync::Arc;

use forward::address::{HostName, Target};
use forward::message::{Failure, Reason};
use forward::policy::{Policy, Verdict};
use forward::spec::Listen;
use forwarding::sessions::Current;
use serde_json::{Value, json};

use crate::cli::forward::own::Own;
use crate::cli::path_report;

/// Letters of the reason why there is no connection, in a status.
const MESSAGE_LETTERS_MAX: usize = 300;

/// The servers of a daemon, in the order of the user.
pub(in crate::cli::forward) struct Routes {
    routes: Vec<Route>,
}

/// A server.
pub(in crate::cli::forward) struct Route {
    /// For the user.
    pub(in crate::cli::forward) name: Option<String>,
    /// What goes there; without them, everything.
    pub(in crate::cli::forward) rules: Option<Policy>,
    pub(in crate::cli::forward) own: Arc<Own>,
}

impl Routes {
    pub(in crate::cli::forward) const fn new(routes: Vec<Route>) -> Self {
        Self { routes }
    }

    /// The server for a target. An address goes by rules with addresses, a name by rules with names.
    pub(super) fn for_target(&self, target: &Target) -> Result<&Arc<Own>, Failure> {
        self.first(&format_args!("{target} (no `target` does)"), |rules| rules.verdict(target) == Verdict::Allowed)
    }

    /// The server that listens at a place.
    pub(super) fn for_place(&self, listen: &Listen) -> Result<&Arc<Own>, Failure> {
        self.first(&format_args!("{listen} (no `permit-listen` does)"), |rules| rules.allows_listening(listen))
    }

    fn first(&self, what: &dyn std::fmt::Display, fits: impl Fn(&Policy) -> bool) -> Result<&Arc<Own>, Failure> {
        let found = self.routes.iter().find(|route| route.rules.as_ref().is_none_or(&fits));
        found
            .map(|route| &route.own)
            .ok_or_else(|| Failure::new(Reason::NotAllowed, &format!("no server of the daemon is for {what}")))
    }

    /// Asks for the addresses of a name: the first server that has a rule with the name, and before it those that
    /// have rules with addresses, of which the answer has one.
    pub(super) async fn look_up(&self, name: &HostName) -> Result<Vec<IpAddr>, Failure> {
        let mut last = Failure::new(Reason::NotAllowed, &format!("no server of the daemon is for the name {name}"));
        let mut away = None;
        for Route { rules, own, name: server } in &self.routes {
            let verdict = rules.as_ref().map_or(Verdict::Allowed, |rules| rules.lookup_verdict(name));
            if verdict == Verdict::Refused {
                continue;
            }
            if verdict == Verdict::ByAddress && own.sessions.is_over() {
                // It will never know the name.
                continue;
            }
            if verdict == Verdict::ByAddress && own.sessions.now().is_none() {
                // It may not know the name at all. To wait for it would delay the names of others.
                let server = server.as_deref().unwrap_or("the server");
                let detail = format!("{server}, which may know the name {name}, is not connected");
                away = Some(Failure::new(Reason::NetworkUnreachable, &detail));
                continue;
            }
            let found = {
                let _place = own.place().await.ok_or_else(|| Failure::new(Reason::Other, "the daemon ends"))?;
                own.look_up(name.clone()).await
            };
            if verdict == Verdict::Allowed {
                return found;
            }
            match found {
                Ok(mut found) => {
                    // Connections to other addresses would not go there.
                    found.retain(|ip| rules.as_ref().is_none_or(|rules| rules.may_reach(*ip)));
                    if !found.is_empty() {
                        return Ok(found);
                    }
                }
                Err(failure) => last = failure,
            }
        }
        // That a name does not exist is not known while a server is away.
        Err(away.unwrap_or(last))
    }

    /// For the user: each server.
    pub(super) fn status(&self) -> Vec<Value> {
        let status = |route: &Route| {
            let (state, session, message) = match route.own.sessions.current() {
                Current::Here(session) => ("connected", Some(session), None),
                Current::Away(why) => ("connecting", None, why),
                Current::Over(why) => ("given_up", None, Some(why)),
            };
            let ends = session.as_ref().map(|session| Arc::clone(&session.ends)).unwrap_or_default();
            let paths = session.as_ref().map(|session| session.connection.stats().paths).unwrap_or_default();
            json!({
                "name": route.name, "state": state, "is_connected": session.is_some(),
                "message": message.map(|message| message.chars().take(MESSAGE_LETTERS_MAX).collect::<String>()),
                "server": session.map(|session| session.peer.clone()),
                "paths": paths.iter().map(|path| path_report::as_json(path, &ends)).collect::<Vec<_>>(),
            })
        };
        self.routes.iter().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::sync::watch;

    use super::*;
    use forwarding::listener::places;
    use forwarding::sessions::Sessions;

    /// A server that is away, and what keeps it so.
    fn away(targets: &[&str]) -> (Route, watch::Sender<Current>) {
        let (sender, current) = watch::channel(Current::Away(None));
        let targets = targets.iter().map(|target| target.parse().expect("a rule")).collect();
        let own = Arc::new(Own { sessions: Sessions::Current(current), places: places() });
        (Route { name: None, rules: Some(Policy::new(targets, Vec::new())), own }, sender)
    }

    fn look_up(routes: &Routes, name: &str) -> Poll<Result<Vec<IpAddr>, Failure>> {
        let name = HostName::new(name).expect("a name");
        let mut found = pin!(routes.look_up(&name));
        found.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn names_do_not_wait_for_a_server_that_is_away_and_has_no_rule_with_them() {
        let ((first, _first), (second, second_sender)) =
            (away(&["10.0.0.0/8:*"]), away(&["10.0.0.0/8:*", "*.lab.example:*"]));
        let routes = Routes::new(vec![first, second]);
        let Poll::Ready(Err(failure)) = look_up(&routes, "db.example") else { panic!("it waits") };
        assert_eq!(failure.reason, Reason::NetworkUnreachable);
        // This one is for the second server only.
        assert!(look_up(&routes, "db.lab.example").is_pending());
        second_sender.send_replace(Current::Over("revoked".to_owned()));
        let Poll::Ready(Err(failure)) = look_up(&routes, "db.lab.example") else { panic!("it waits") };
        assert_eq!(failure.reason, Reason::NetworkUnreachable);
    }
}
