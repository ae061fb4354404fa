//! Connection attempts, which the application sees before the handshake, and addresses that clients
//! have proved before.

use std::time::Duration;

use litz::{Closed, Connection, Endpoint, ErrorCode, Incoming};

use crate::world::{TEST_TIMEOUT, Variant, World, serve};

fn assert_refused(result: Result<Connection, Closed>) {
    let Err(Closed::ByPeerTransport(reason)) = result else { panic!("{result:?}") };
    assert_eq!(reason.code, ErrorCode::CONNECTION_REFUSED);
}

/// Returns the next attempt that does not repeat one of these.
fn next(server: &Endpoint, seen: &mut Vec<litz::ConnectionId>) -> Incoming {
    loop {
        let incoming = server.accept_incoming().unwrap();
        if !seen.contains(&incoming.original_destination()) {
            seen.push(incoming.original_destination());
            return incoming;
        }
    }
}

pub(crate) fn the_application_decides_before_the_handshake(variant: Variant) {
    let world = World::new(variant);
    serve(
        &world,
        world.config().with_incoming_max(10),
        |server| {
            let mut seen = Vec::new();
            let refused = next(server, &mut seen);
            assert_eq!(refused.local_address(), server.local_addr());
            assert!(refused.remote_address().ip().is_loopback() && !refused.is_validated());
            refused.refuse();
            drop(next(server, &mut seen));

            let ignored = next(server, &mut seen);
            let id = ignored.original_destination();
            ignored.ignore();
            // The client tries again, and has to prove its address.
            let validated = loop {
                let incoming = server.accept_incoming().unwrap();
                assert_eq!(incoming.original_destination(), id);
                if incoming.is_validated() {
                    break incoming;
                }
                incoming.retry().unwrap();
            };
            let error = validated.retry().unwrap_err();
            error.into_incoming().accept();
            assert_eq!(server.accept().unwrap().closed(), Closed::ByPeer { code: 5, reason: String::new() });
        },
        |client, address| {
            let connect = || client.connect(address, "host", world.client_tls.clone());
            assert_refused(connect());
            assert_refused(connect());
            let connection = connect().unwrap();
            connection.close(5, "");
            assert_eq!(connection.closed(), Closed::Local);
        },
    );
    let server = world.server(world.config());
    assert!(matches!(server.accept_incoming(), Err(Closed::Configuration(_))), "it does not ask");
}

pub(crate) fn a_client_that_comes_back_has_proved_its_address(variant: Variant) {
    let world = World::new(variant);
    for has_tokens in [true, false] {
        serve(
            &world,
            world.config().with_incoming_max(10).with_address_tokens(has_tokens),
            |server| {
                let mut seen = Vec::new();
                for is_back in [false, true, true] {
                    let incoming = next(server, &mut seen);
                    assert_eq!(incoming.is_validated(), is_back && has_tokens);
                    incoming.accept();
                    let connection = server.accept().unwrap();
                    // It follows the token.
                    connection.open_uni().unwrap().finish().unwrap();
                    connection.closed();
                }
            },
            |client, address| {
                for _ in 0..3 {
                    let connection = world.connect(client, address);
                    assert!(connection.accept_uni().unwrap().read_chunk().unwrap().is_none());
                    connection.close(0, "");
                    connection.closed();
                }
            },
        );
    }
}

pub(crate) fn attempts_are_bounded_and_expire(variant: Variant) {
    let world = World::new(variant);
    let connect = |address| {
        let client = world.client(world.config());
        assert_refused(client.connect(address, "host", world.client_tls.clone()));
    };
    let server = world.server(world.config().with_incoming_max(1));
    let address = server.local_addr();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| connect(address));
        let held = server.accept_incoming().unwrap();
        // Each driver holds one.
        if variant.driver_count() == 1 {
            let second = scope.spawn(|| connect(address));
            while !second.is_finished() {
                assert!(server.accept_incoming_timeout(Duration::from_millis(10)).unwrap().is_none());
            }
            assert!(!first.is_finished(), "it waits for the decision");
        }
        drop(held);
        while !first.is_finished() {
            drop(server.accept_incoming_timeout(Duration::from_millis(10)));
        }
    });

    let config = world.config_with_handshake_timeout(Duration::from_millis(300)).with_incoming_max(1);
    let server = world.server(config);
    let address = server.local_addr();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| connect(address));
        let held = server.accept_incoming_timeout(TEST_TIMEOUT).unwrap().unwrap();
        while !client.is_finished() {
            assert!(server.accept_timeout(Duration::from_millis(10)).unwrap().is_none());
        }
        // This is too late.
        held.accept();
        assert!(server.accept_timeout(Duration::from_millis(10)).unwrap().is_none());
    });
}
