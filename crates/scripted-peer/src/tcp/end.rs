//! [`TcpEnd`]: the measured end of a TCP connection, on threads.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use driver::Flush;
use engine::{Costs, DriverSettings, Drivers, Placement, ReceiveWorkerStats, WorkerPoolStats};
use layers::{RecordKey, SharedSecret, Stack};
use tcp::{HostSecret, TcpConfig};
use tcp_driver::{Closed, Connect, Layers, Limits, LocalAddress, Runtime, StreamHandle, Tcp, TcpShared};
use units::{Duration, Instant};

use super::check::StreamCheck;
use super::device::ScriptDevice;
use super::feed::Feeder;
use super::script::TcpScript;

/// Time limit of the handshake, which takes microseconds.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Limit on bytes in flight: enough that acknowledgements never limit, and few enough for the
/// caches of two processors.
const SEND_BUFFER: usize = 4 << 20;

/// Limit on bytes between the application and the connection.
const BETWEEN_BYTES: usize = 8 << 20;

const IPV4_LEN: usize = 20;
const TCP_LEN: usize = 20;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Returns the address of the measured end.
pub(crate) fn local_addr() -> SocketAddr {
    (LOCAL, 0).into()
}

/// Returns the address of the script.
pub(crate) fn peer_addr() -> SocketAddr {
    (PEER, 5001).into()
}

/// The measured stack, and its processors.
#[derive(Debug, Clone)]
pub struct TcpSetup {
    /// Layers.
    pub stack: Stack,
    /// Application bytes in a packet.
    pub payload: usize,
    /// Placement of its work on processors.
    pub placement: Placement,
    /// Processors in use, by their system numbers.
    pub cores: Vec<usize>,
    /// Whether the time of each activity is measured.
    pub metered: bool,
}

impl TcpSetup {
    /// Returns the layers, with records that fill a packet. The keys need not be secret: nothing
    /// leaves the process.
    pub fn layers(&self) -> Layers {
        let layers = Layers::new(self.stack, SharedSecret::new([3; 32]));
        layers.with_record_len(self.payload).with_single_packets()
    }

    /// Returns the length of a packet.
    pub fn packet_len(&self) -> usize {
        let record_len = self.stack.cipher.map_or(self.payload, |layer| RecordKey::sealed_len(layer, self.payload));
        IPV4_LEN + self.layers().below_len() + TCP_LEN + record_len
    }

    pub(crate) fn protocol(&self) -> Tcp {
        let config = TcpConfig {
            mtu: self.packet_len(),
            send_buffer: SEND_BUFFER,
            buffers_initial: SEND_BUFFER,
            timestamps: false,
            sack: false,
            ecn: false,
            ..TcpConfig::default()
        };
        let address = LocalAddress { ip: LOCAL, device: 0 };
        Tcp::new(config, HostSecret::new([4; 32]), vec![address]).with_layers(self.layers())
    }

    pub(crate) fn settings(&self) -> DriverSettings {
        DriverSettings {
            placement: self.placement,
            cores: self.cores.clone(),
            measure: self.metered,
            ..DriverSettings::default()
        }
    }

    pub(crate) fn limits() -> Limits {
        Limits { outbox_bytes_max: BETWEEN_BYTES, inbox_bytes_max: BETWEEN_BYTES }
    }
}

/// The engine, as seen by handles.
#[derive(Clone)]
pub(crate) struct ScriptRuntime(pub(crate) Drivers<ScriptDevice>);

impl Runtime for ScriptRuntime {
    fn kick(&self, shared: &TcpShared, flush: Flush) {
        self.0.kick(shared, flush);
    }

    fn block_on<T>(&self, deadline: Option<Instant>, poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        self.0.block_on(deadline, poll)
    }
}

impl ScriptRuntime {
    /// Begins the only connection.
    pub(crate) fn connect(&self) -> Result<StreamHandle<Self>, Closed> {
        let shared: &Arc<TcpShared> = self.0.shared(0);
        StreamHandle::connect(self, shared, peer_addr(), Connect::default(), 0)
    }
}

/// A connection of a measured stack to a script.
pub struct TcpEnd {
    drivers: Drivers<ScriptDevice>,
    stream: StreamHandle<ScriptRuntime>,
    device: ScriptDevice,
}

impl TcpEnd {
    /// Starts a stack and connects. `check` sees every packet, which costs time.
    ///
    /// # Errors
    /// Returns a message for the user.
    pub fn start(setup: &TcpSetup, check: Option<StreamCheck>) -> Result<Self, String> {
        let device = ScriptDevice::new(TcpScript::new(setup.layers(), check));
        let make = |count, _| Ok((0..count).map(|_| setup.protocol()).collect());
        let drivers = Drivers::start(setup.settings(), TcpSetup::limits(), vec![device.clone()], make)
            .map_err(|error| error.to_string())?;
        let stream = ScriptRuntime(drivers.clone()).connect().map_err(|error| error.to_string())?;
        let deadline = drivers.now() + CONNECT_MAX;
        let connected = drivers.block_on(Some(deadline), |waker| stream.poll_connected(waker));
        connected.ok_or("the handshake in memory does not complete")?.map_err(|error| error.to_string())?;
        Ok(Self { drivers, stream, device })
    }

    /// Writes all of `bytes`. Waits for space.
    ///
    /// # Errors
    /// Returns a message for the user if the connection has ended.
    pub fn write(&self, mut bytes: Bytes) -> Result<(), String> {
        while !bytes.is_empty() {
            let written = self.drivers.block_on(None, |waker| self.stream.poll_write(&mut bytes, waker));
            written.ok_or("the stack has ended")?.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Returns the next received bytes. Waits for them.
    ///
    /// # Errors
    /// Returns a message for the user if the connection has ended.
    pub fn read(&self) -> Result<Bytes, String> {
        let read = self.drivers.block_on(None, |waker| self.stream.poll_read(usize::MAX, waker));
        let read = read.ok_or("the stack has ended")?.map_err(|error| error.to_string())?;
        read.ok_or_else(|| "the script has ended the stream".to_owned())
    }

    /// Creates the feeder of the script's data for this connection.
    ///
    /// # Errors
    /// Returns a message for the user if there is no connection.
    pub fn feeder(&self, payload: usize) -> Result<Feeder, String> {
        let feeder = self.device.with_script(|script| script.feeder(payload));
        feeder.ok_or_else(|| "the script has no connection".to_owned())
    }

    /// Ends the connection: a waiting writer gets an error.
    pub fn close(&self) {
        self.drivers.stop();
    }

    /// Returns the number of packets with data that were sent.
    pub fn packets_sent(&self) -> u64 {
        self.device.with_script(TcpScript::packets)
    }

    /// Returns the number of packets that were resent, although none was lost.
    pub fn packets_repeated(&self) -> u64 {
        self.device.with_script(TcpScript::repeated)
    }

    /// Returns the time of each activity so far, if it is measured.
    pub fn costs(&self) -> Option<Costs> {
        self.drivers.costs()
    }

    /// Returns the counters of the workers, if there are any.
    pub fn worker_pool_stats(&self) -> Option<WorkerPoolStats> {
        self.drivers.worker_pool_stats()
    }

    /// Returns the counters of the receive worker, if there is one.
    pub fn receive_worker_stats(&self) -> Option<ReceiveWorkerStats> {
        self.drivers.receive_worker_stats()
    }

    /// Returns the device and its script.
    pub const fn device(&self) -> &ScriptDevice {
        &self.device
    }

    /// Checks for a failure.
    ///
    /// # Errors
    /// Returns the first failure, as a message for the user.
    pub fn check(&self) -> Result<(), String> {
        self.device.with_script(|script| script.failure().map_or(Ok(()), |failure| Err(failure.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use layers::{CipherLayer, DigestLayer};

    use super::*;
    use crate::pattern::Pattern;

    #[test]
    fn every_stack_receives_what_the_script_has_sealed() {
        for cipher in CipherLayer::ALL.into_iter().map(Some).chain([None]) {
            for digest in DigestLayer::ALL.into_iter().map(Some).chain([None]) {
                for placement in [Placement::Thread, Placement::Packet(3)] {
                    let stack = Stack { cipher, digest };
                    let setup = TcpSetup { stack, payload: 4096, placement, cores: Vec::new(), metered: false };
                    let end = TcpEnd::start(&setup, None).expect("connected");
                    let mut feeder = end.feeder(setup.payload).expect("connected");
                    let (pattern, mut read) = (Pattern::new(), 0);
                    for _ in 0..2 {
                        end.device().feed(feeder.make(300_000));
                        while read < feeder.bytes() {
                            let bytes = end.read().unwrap_or_else(|error| panic!("{stack} {placement}: {error}"));
                            assert!(pattern.matches(read, &bytes), "{stack} {placement} at {read}");
                            read += bytes.len() as u64;
                        }
                        assert_eq!(read, feeder.bytes(), "{stack} {placement}");
                    }
                    end.close();
                }
            }
        }
    }
}
