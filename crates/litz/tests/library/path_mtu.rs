//! Path MTU discovery between endpoints.

use std::io::{Read, Write};

use litz::Closed;

use crate::world::{Variant, World, serve};

pub(crate) fn datagrams_grow_to_what_the_path_carries(variant: Variant) {
    let world = World::new(variant);
    let config = world.config();
    let transport = config.transport.clone().with_datagram_size_max(8972);
    serve(
        &world,
        config.with_transport(transport),
        |server| {
            let connection = server.accept().unwrap();
            let mut stream = connection.accept_uni().unwrap();
            let mut len = 0;
            while let Some(chunk) = stream.read_chunk().unwrap() {
                assert!(chunk.iter().all(|byte| *byte == 7));
                len += chunk.len() as u64;
            }
            // The client reports the amount.
            let mut said = [0; 8];
            connection.accept_uni().unwrap().read_exact(&mut said).unwrap();
            assert_eq!(u64::from_be_bytes(said), len);
            connection.close(0, "");
            assert_eq!(connection.closed(), Closed::Local);
        },
        |client, address| {
            let connection = world.connect(client, address);
            let mut stream = connection.open_uni().unwrap();
            let mut len = 0_u64;
            while connection.stats().datagram_size == 1200 {
                stream.write_all(&[7; 100_000]).unwrap();
                len += 100_000;
            }
            stream.finish().unwrap();
            let mut last = connection.open_uni().unwrap();
            last.write_all(&len.to_be_bytes()).unwrap();
            last.finish().unwrap();
            assert_eq!(connection.closed(), Closed::ByPeer { code: 0, reason: String::new() });
        },
    );
}
