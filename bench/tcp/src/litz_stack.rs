//! Our stack.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use litz::Placement;
use litz::tcp::{IpDevice, TcpStack, TcpStackConfig, TcpStream, Tun};

use crate::serve::{CHUNK, GIVE, TAKE};
use crate::{DEVICE, KERNEL, MTU, PORT, STACK};

pub(crate) fn serve(placement: Placement) {
    let tun = Tun::open_up(DEVICE, &[(KERNEL, 24)], MTU).expect("a device");
    let config = TcpStackConfig::new(IpDevice::kernel(tun, STACK), &[STACK]);
    let stack = TcpStack::start(config.with_placement(placement)).expect("a stack");
    let listener = stack.listen(PORT).expect("the port is free");
    println!("ready");
    for stream in listener.incoming() {
        // The peer ends it as it likes.
        let _ended = serve_stream(&stream);
    }
}

fn serve_stream(mut stream: &TcpStream) -> Result<(), Box<dyn std::error::Error>> {
    let mut what = [0];
    stream.read_exact(&mut what)?;
    match what[0] {
        TAKE => while stream.read_chunk()?.is_some() {},
        GIVE => {
            let chunk = Bytes::from_owner(Arc::<[u8]>::from(vec![7; CHUNK]));
            loop {
                stream.write_chunk(chunk.clone())?;
            }
        }
        _ => {}
    }
    Ok(())
}
