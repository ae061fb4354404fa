//! Which of a daemon's servers a request goes to: the first one with a rule for it.

use std::net::IpAddr;
use std::sync::Arc;

use forward::address::{HostName, Target};
use forward::message::{Failure, Reason};
use forward::policy::{Policy, Verdict};
use forward::spec::Listen;
use serde_json::{Value, json};

use crate::cli::forward::own::Own;
use crate::cli::path_report;

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
        for Route { rules, own, .. } in &self.routes {
            let verdict = rules.as_ref().map_or(Verdict::Allowed, |rules| rules.lookup_verdict(name));
            if verdict == Verdict::Refused {
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
        Err(last)
    }

    /// For the user: each server.
    pub(super) fn status(&self) -> Vec<Value> {
        let status = |route: &Route| {
            let session = route.own.sessions.now();
            let paths = session.as_ref().map(|session| session.connection.stats().paths).unwrap_or_default();
            json!({
                "name": route.name, "is_connected": session.is_some(),
                "server": session.map(|session| session.peer.clone()),
                "paths": paths.iter().map(path_report::as_json).collect::<Vec<_>>(),
            })
        };
        self.routes.iter().map(status).collect()
    }
}
