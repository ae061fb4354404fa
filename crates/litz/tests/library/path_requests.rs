//! The application learns the outcome of the paths that it requests.

use std::net::SocketAddr;

use litz::{
    Closed, Connection, Endpoint, EndpointConfig, OpenPathError, PathEvent, PathId, PathState, PathWait,
    TransportConfig,
};

use crate::world::{TEST_TIMEOUT, Variant, World};

/// Returns a configuration with this many paths at a time.
fn paths(world: &World, paths_max: u32) -> EndpointConfig {
    world.config().with_transport(TransportConfig::default().with_max_paths(paths_max))
}

/// Returns the first event that `choose` accepts; the others are dropped.
fn wait_for<T>(connection: &Connection, mut choose: impl FnMut(PathEvent) -> Option<T>) -> T {
    loop {
        let event = connection.next_path_event_timeout(TEST_TIMEOUT).unwrap().expect("an event in time");
        if let Some(chosen) = choose(event) {
            return chosen;
        }
    }
}

/// Returns the client and the server of a connection whose sides allow this many paths, and the
/// server's address.
fn pair(world: &World, [ours, theirs]: [u32; 2]) -> (Endpoint, Connection, Endpoint, Connection, SocketAddr) {
    let server = world.server(paths(world, theirs));
    let client = world.client(paths(world, ours));
    let address = server.local_addr();
    // `Inline` has no thread, so each side runs inside the calls of its own thread.
    let (there, here) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| server.accept().unwrap());
        let here = world.connect(&client, address);
        (accepting.join().unwrap(), here)
    });
    (client, here, server, there, address)
}

/// Closes the connection when it is dropped, even if the test fails: the scope waits for its end.
struct CloseOnDrop<'a>(&'a Connection);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close(0, "");
    }
}

/// Runs `client` while another thread runs the calls of the server.
fn beside<T>(there: &Connection, here: &Connection, client: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        scope.spawn(|| there.closed());
        let _close = CloseOnDrop(here);
        client()
    })
}

/// A request that this side's limit forbids is refused, and one that it allows is opened.
pub(super) fn a_request_beyond_our_limit_is_refused_with_an_event(variant: Variant) {
    let world = World::new(variant);
    let (_client, here, _server, there, address) = pair(&world, [2, 4]);
    beside(&there, &here, || {
        here.open_path(0, address, false).unwrap();
        here.open_path(0, address, false).unwrap();
        // The first path may work before the second request is served.
        let (mut opened, mut refused, mut is_active) = (None, None, false);
        while !is_active || refused.is_none() {
            match wait_for(&here, Some) {
                PathEvent::Opened { path, socket, remote } => opened = Some((path, socket, remote)),
                PathEvent::Refused { socket, remote, error } => refused = Some((socket, remote, error)),
                PathEvent::State { path, state: PathState::Active } => is_active |= path == PathId(1),
                _ => {}
            }
        }
        assert_eq!(opened, Some((PathId(1), 0, address)));
        assert_eq!(refused, Some((0, address, OpenPathError::TooMany)));
    });
    // Then the rest of the events, and the end.
    let end = std::iter::from_fn(|| Some(here.next_path_event())).find_map(Result::err);
    assert_eq!(end, Some(Closed::Local));
}

/// A peer that allows fewer paths does not refuse; the request waits, and the application is
/// notified.
pub(super) fn a_request_beyond_the_peers_limit_waits_with_an_event(variant: Variant) {
    let world = World::new(variant);
    let (_client, here, _server, there, address) = pair(&world, [4, 2]);
    beside(&there, &here, || {
        here.open_path(0, address, false).unwrap();
        wait_for(&here, |event| if let PathEvent::Opened { path, .. } = event { Some(path) } else { None });
        here.open_path(0, address, false).unwrap();
        let waits = wait_for(&here, |event| match event {
            PathEvent::Waiting { socket, remote, reason } => Some((socket, remote, reason)),
            PathEvent::Opened { .. } => panic!("the peer allows two paths"),
            _ => None,
        });
        assert_eq!(waits, (0, address, PathWait::PeerLimit));
    });
}

/// Each of several requests gets its own reason, although they are served together.
pub(super) fn several_requests_wait_for_their_own_reasons(variant: Variant) {
    let world = World::new(variant);
    let (_client, here, _server, there, address) = pair(&world, [4, 2]);
    beside(&there, &here, || {
        here.open_path(0, address, false).unwrap();
        here.open_path(0, address, false).unwrap();
        let (mut has_opened, mut reasons) = (false, Vec::new());
        while !has_opened || !reasons.contains(&PathWait::PeerLimit) {
            match wait_for(&here, Some) {
                PathEvent::Opened { path, .. } => has_opened |= path == PathId(1),
                PathEvent::Waiting { reason, .. } => reasons.push(reason),
                PathEvent::Refused { error, .. } => panic!("this side allows four paths: {error}"),
                _ => {}
            }
        }
        assert!(reasons.len() <= 2, "{reasons:?}");
    });
}

/// Neither a connection without multipath nor a server opens paths.
pub(super) fn requests_that_never_succeed_are_refused_with_the_reason(variant: Variant) {
    let world = World::new(variant);
    let refusal = |event| if let PathEvent::Refused { error, .. } = event { Some(error) } else { None };
    let (_client, here, _server, there, address) = pair(&world, [0, 0]);
    beside(&there, &here, || {
        here.open_path(0, address, false).unwrap();
        assert_eq!(wait_for(&here, refusal), OpenPathError::Unsupported);
    });
    let (_client, here, _server, there, address) = pair(&world, [2, 2]);
    beside(&here, &there, || {
        there.open_path(0, address, false).unwrap();
        assert_eq!(wait_for(&there, refusal), OpenPathError::NotClient);
    });
}
