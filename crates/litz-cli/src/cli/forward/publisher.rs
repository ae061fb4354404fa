//! Publishes a port of a program through the daemon (`litz run --publish`): the far host listens, and its connections
//! go to the program's own listening socket.

use std::sync::Arc;
use std::time::Duration;

use forward::address::Protocol;
use forward::spec::{Dynamic, Listen};
use forwarding::carry::Carried;
use forwarding::events::Events;
use forwarding::published::{Published, port_of_program};
use serde_json::json;

use super::daemon::user::{self, Arrival, Daemon};
use super::report::Report;

/// The pause before the next attempt to publish a port again, when the daemon has ended.
const AGAIN_INTERVAL: Duration = Duration::from_secs(1);

/// One port of a program.
pub(super) struct Publisher {
    daemon: Arc<Daemon>,
    published: Arc<Published>,
    report: Arc<Report>,
    place: Dynamic,
}

impl Publisher {
    pub(super) fn new(daemon: &Arc<Daemon>, published: &Arc<Published>, report: &Arc<Report>, place: &Dynamic) -> Self {
        let (daemon, published) = (Arc::clone(daemon), Arc::clone(published));
        Self { daemon, published, report: Arc::clone(report), place: place.clone() }
    }

    /// Lets the far host listen.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) async fn publish(&self) -> Result<user::Published, String> {
        let listen = self.listen();
        let port = self.place.port;
        match self.daemon.publish(listen.clone()).await {
            Ok(Ok(published)) => {
                let target = port_of_program(port);
                let event = json!({
                    "event": "forwarding", "kind": "published", "listen": listen.to_string(), "target": target,
                    "port": port,
                });
                self.report.tell(&event, &format!("{listen} of the server leads to {target}"));
                Ok(published)
            }
            Ok(Err(failure)) => Err(format!("cannot publish {listen}: {failure}")),
            Err(_ended) => Err(format!("cannot publish {listen}: the daemon has ended")),
        }
    }

    /// Takes what arrives. If the daemon ends, the port is published again as soon as there is another one.
    pub(super) async fn run(self, mut published: user::Published) {
        loop {
            while let Some(arrival) = published.next().await {
                let (ports, report, port) = (Arc::clone(&self.published), Arc::clone(&self.report), self.place.port);
                tokio::spawn(async move { take(&ports, &report, port, arrival).await });
            }
            let listen = self.listen();
            let event = json!({ "event": "retrying", "message": "the daemon has ended" });
            self.report.tell(&event, &format!("{listen} is not published any more: the daemon has ended"));
            published = self.publish_again().await;
        }
    }

    async fn publish_again(&self) -> user::Published {
        let mut told = String::new();
        loop {
            tokio::time::sleep(AGAIN_INTERVAL).await;
            match self.publish().await {
                Ok(published) => return published,
                // There may be none for hundreds of attempts.
                Err(message) if message != told => {
                    let event = json!({ "event": "retrying", "message": message });
                    self.report.fail(&event, &format!("{message}; trying again"));
                    told = message;
                }
                Err(_) => {}
            }
        }
    }

    fn listen(&self) -> Listen {
        let Dynamic { bind, port } = self.place;
        Listen::Port { protocol: Protocol::Tcp, bind, port }
    }
}

/// Connects an arrival to the program, and waits for the end of its data.
async fn take(published: &Arc<Published>, report: &Report, port: u16, arrival: Arrival) {
    let from = arrival.origin.map_or_else(|| "the far host".to_owned(), |origin| origin.to_string());
    let label = report.label(&from, &port_of_program(port));
    match published.connect(port, arrival.origin).await {
        Ok((socket, _named)) => {
            report.opened(&label);
            let carried = Carried::default();
            let result = arrival.carry(socket, &carried).await;
            report.closed(&label, &carried, &result);
        }
        Err(failure) => {
            report.refused(&label, failure.reason.name(), &failure.to_string());
            arrival.decline(failure).await;
        }
    }
}
