//! Carries connections between our stack and the kernel's, so that programs with several connections,
//! and in either role, have our stack on their way.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use litz::tcp::{IpDevice, TcpStack, TcpStackConfig, Tun};

use super::world::{Place, World, kernel_addresses, stack_addresses};

/// Bytes that one direction copies at a time.
const CHUNK: usize = 64 << 10;

/// Our stack in the namespace `host`. Connections to it are carried to the kernel's loopback interface
/// there; connections to [`kernel_port`](Self::kernel_port) of that interface are carried by our stack
/// to a program in the namespace `remote`.
pub(super) struct Forwarder {
    stack: TcpStack,
    pub(super) kernel_port: u16,
}

impl Forwarder {
    /// Starts on device `number`: it listens to `port`, and connects to `target`.
    pub(super) fn start(world: &World, number: u32, port: u16, target: SocketAddr) -> Self {
        let tun = move || {
            let [v4, v6] = kernel_addresses(number);
            let tun = Tun::open_up(&format!("t{number}"), &[(v4, 24), (v6, 64)], 1500).expect("a device");
            IpDevice::kernel(tun, stack_addresses(number)[0])
        };
        Self::start_on(world, number, tun, port, target)
    }

    /// As [`start`](Self::start), with the addresses of device `number` on another device.
    pub(super) fn start_on(
        world: &World,
        number: u32,
        device: impl FnOnce() -> IpDevice + Send + 'static,
        port: u16,
        target: SocketAddr,
    ) -> Self {
        let inside = move || start(number, device(), port, target);
        let thread = world.namespace(Place::Host).run(inside).expect("a thread");
        thread.join().expect("it starts").expect("in the namespace")
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stack.close();
    }
}

fn start(number: u32, device: IpDevice, port: u16, target: SocketAddr) -> Forwarder {
    let config = TcpStackConfig::new(device, &stack_addresses(number));
    let stack = TcpStack::start(config).expect("a stack");
    // Threads are in the namespace of their creator. These end with the test.
    let accepting = stack.listen(port).expect("the port is free");
    thread::spawn(move || {
        for stream in accepting.incoming() {
            thread::spawn(move || match TcpStream::connect(("127.0.0.1", port)) {
                Ok(kernel) => carry(&kernel, &stream),
                Err(_) => stream.reset(),
            });
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let kernel_port = listener.local_addr().expect("bound").port();
    let connecting = stack.clone();
    thread::spawn(move || {
        while let Ok((kernel, _)) = listener.accept() {
            let stack = connecting.clone();
            thread::spawn(move || {
                if let Ok(stream) = stack.connect(target) {
                    carry(&kernel, &stream);
                }
            });
        }
    });
    Forwarder { stack, kernel_port }
}

/// Carries both directions; each ends by itself.
fn carry(kernel: &TcpStream, stream: &litz::tcp::TcpStream) {
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut from, mut to, mut memory) = (kernel, stream, vec![0; CHUNK]);
            loop {
                match from.read(&mut memory) {
                    Ok(0) => return stream.finish(),
                    Ok(count) if to.write_all(&memory[..count]).is_ok() => {}
                    Ok(_) => return drop(kernel.shutdown(Shutdown::Both)),
                    Err(_) => return stream.reset(),
                }
            }
        });
        let mut to = kernel;
        loop {
            match stream.read_chunk() {
                Ok(None) => return drop(kernel.shutdown(Shutdown::Write)),
                Ok(Some(bytes)) if to.write_all(&bytes).is_ok() => {}
                Ok(Some(_)) => return stream.reset(),
                Err(_) => return drop(kernel.shutdown(Shutdown::Both)),
            }
        }
    });
}
