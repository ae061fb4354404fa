//! The handshakes of SOCKS clients that are under way. When the proxy ends, each gets its answer first.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// How long the end of the proxy waits for clients to take their answers. The bytes are on their way then.
const END_TIME: Duration = Duration::from_millis(500);

/// All handshakes of a proxy.
pub struct Handshakes(watch::Sender<bool>);

/// One handshake. It is over when this is dropped.
pub struct Handshake(watch::Receiver<bool>);

impl Default for Handshakes {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Handshakes {
    /// Counts a handshake until the result is dropped.
    pub fn begin(&self) -> Handshake {
        Handshake(self.0.subscribe())
    }

    /// Ends all handshakes, also those that begin from now on. Returns when the clients have their answers, or
    /// after 500 ms.
    pub async fn end(&self) {
        self.0.send_replace(true);
        let _late = timeout(END_TIME, self.0.closed()).await;
    }
}

impl Handshake {
    /// Waits until [`Handshakes::end`] is called.
    pub async fn ended(&self) {
        // It fails if the proxy is gone already.
        let _is_gone = self.0.clone().wait_for(|has_ended| *has_ended).await.is_err();
    }
}
