//! The listeners of the client's host: connections to them go to the server.

use std::sync::Arc;

use forward::address::Protocol;
use forward::message::Message;
use forward::spec::Listen;
use forwarding::listener::{Bound, Way};
use forwarding::socks::Proxy;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::Client;

impl Client<'_> {
    /// Opens all listeners of this host. They serve as long as the result is there.
    pub(in crate::cli::forward) fn listen(&self, runtime: &Runtime) -> Result<JoinSet<()>, String> {
        let (_context, mut tasks) = (runtime.enter(), JoinSet::new());
        for forward in &self.forwards.local {
            let listen = &forward.listen;
            let bound = Bound::open_here(listen).map_err(|error| error.to_string())?;
            self.tell_listening("local", &bound, &forward.target);
            let target = forward.target.clone();
            let way = Way {
                sessions: self.sessions(),
                request: Box::new(move |_| Message::Open { target: target.clone() }),
                shown: forward.target.to_string(),
                events: self.report.clone(),
                places: Arc::clone(&self.places),
            };
            bound.serve(&Arc::new(way), &mut tasks);
        }
        for dynamic in &self.forwards.dynamic {
            let listen = Listen::Port { protocol: Protocol::Tcp, bind: dynamic.bind, port: dynamic.port };
            let bound = Bound::open_here(&listen).map_err(|error| error.to_string())?;
            self.tell_listening("dynamic", &bound, &"SOCKS5");
            let sessions = self.sessions();
            let proxy =
                Arc::new(Proxy { sessions, events: self.report.clone(), handshakes: Arc::clone(&self.handshakes) });
            let act = move |socket, permit, origin| {
                let proxy = Arc::clone(&proxy);
                tokio::spawn(async move {
                    proxy.serve(socket, origin).await;
                    drop(permit);
                });
            };
            bound.serve_with(&self.places, act, &mut tasks);
        }
        Ok(tasks)
    }

    fn tell_listening(&self, kind: &str, bound: &Bound, target: &dyn std::fmt::Display) {
        let (listen, target) = (&bound.listen, target.to_string());
        let event = json!({
            "event": "forwarding", "kind": kind, "listen": listen.to_string(), "target": target,
            "address": bound.address().map(|address| address.to_string()),
        });
        self.report.tell(&event, &format!("{listen} leads to {target}"));
    }
}
