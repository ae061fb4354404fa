//! The file protocol over real connections on the loopback device.

use std::path::Path;
use std::sync::{Arc, Mutex};

use quic_endpoint::identity::{AllowList, KeyPair, client_config, server_config};
use quic_endpoint::{Connection, Endpoint, EndpointConfig, TransportConfig};
use transfer::{
    CLOSE_CODE, ConnectionLink, Credential, KeyAuthoriser, ReceiveOptions, Revision, Role, Secret, SendOptions, Source,
    Summary, TransferError, TransferEvent, control, peer_key, proof_context, receive, send,
};

/// Two endpoints and the connection between them.
struct World {
    _server: Endpoint,
    _client: Endpoint,
    receiver_key: KeyPair,
    sender_key: KeyPair,
    receiving: Connection,
    sending: Connection,
}

impl World {
    fn new() -> Self {
        Self::with_protocols(None)
    }

    /// The sender offers these names of the protocol (RFC 7301) instead of its own.
    fn with_protocols(protocols: Option<Vec<Vec<u8>>>) -> Self {
        let (receiver_key, sender_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let transport = transfer::transport(TransportConfig::default());
        let config = EndpointConfig::loopback().with_transport(transport);
        let server_tls = server_config(&receiver_key, transfer::PROTOCOLS).unwrap();
        let server = Endpoint::bind(config.clone().with_server_tls(server_tls)).unwrap();
        let client = Endpoint::bind(config).unwrap();
        let tls = client_config(&sender_key, &[receiver_key.public().fingerprint()], transfer::PROTOCOLS).unwrap();
        let mut config = tls.config.as_ref().clone();
        if let Some(protocols) = protocols {
            config.alpn_protocols = protocols;
        }
        let sending = client.connect(server.local_addr(), "host", Arc::new(config)).unwrap();
        let receiving = server.accept().unwrap();
        Self { _server: server, _client: client, receiver_key, sender_key, receiving, sending }
    }

    /// Sends `source` into `directory`, whose receiver accepts the keys on `list`, and returns the
    /// results of both ends.
    fn transfer(
        &self,
        source: &Path,
        directory: &Path,
        list: AllowList,
        events: &(dyn Fn(TransferEvent<'_>) + Sync),
    ) -> [Result<Summary, TransferError>; 2] {
        let receiver = self.receiver_key.public().fingerprint();
        std::thread::scope(|scope| {
            let received = scope.spawn(|| {
                let streams = self.receiving.accept_bi().unwrap();
                let context = proof_context(&self.receiving, peer_key(&self.receiving).unwrap(), receiver).unwrap();
                let link = ConnectionLink::new(&self.receiving);
                let (options, mut authoriser) = (ReceiveOptions::default(), KeyAuthoriser::new(list));
                receive::run(&link, control(streams), &context, directory, &options, &mut authoriser, &())
            });
            let context = proof_context(&self.sending, self.sender_key.public(), receiver).unwrap();
            let link = ConnectionLink::new(&self.sending);
            let options = SendOptions::default();
            let source = Source::scan(&[source.to_owned()], &options.cancel).unwrap();
            let streams = self.sending.open_bi().unwrap();
            let sent = send::run(&link, control(streams), &context, &Credential::Key, &source, &options, &events);
            [sent, received.join().unwrap()]
        })
    }
}

#[test]
fn both_ends_of_a_connection_compute_the_same_proof() {
    let world = World::new();
    let sender = world.sender_key.public();
    let receiver = world.receiver_key.public().fingerprint();
    assert_eq!(peer_key(&world.receiving).unwrap(), sender);
    let ours = proof_context(&world.sending, sender, receiver).unwrap();
    let theirs = proof_context(&world.receiving, sender, receiver).unwrap();
    let secret = Secret::from_bytes([5; 16]);
    assert!(theirs.verify(&secret, Role::Sender, &ours.prove(&secret, Role::Sender)));
    let other = World::new();
    let elsewhere = proof_context(&other.receiving, sender, receiver).unwrap();
    assert!(!elsewhere.verify(&secret, Role::Sender, &ours.prove(&secret, Role::Sender)), "another connection");
}

#[test]
fn a_tree_crosses_a_connection_to_a_receiver_that_knows_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, inbox) = (folder.path().join("tree"), folder.path().join("inbox"));
    std::fs::create_dir_all(tree.join("a")).unwrap();
    std::fs::create_dir(&inbox).unwrap();
    std::fs::write(tree.join("a/big"), vec![7; 9_000_000]).unwrap();
    std::fs::write(tree.join("small"), b"small").unwrap();
    let world = World::new();
    let names = Mutex::new(Vec::new());
    let list = AllowList::of([world.sender_key.public().fingerprint()]);
    let [sent, received] = world.transfer(&tree, &inbox, list, &|event| {
        if let TransferEvent::FileDone { path, .. } = event {
            names.lock().unwrap().push(path.to_string());
        }
    });
    let (sent, received) = (sent.unwrap(), received.unwrap());
    assert_eq!([sent.files_done, received.files_done, sent.failed], [2, 2, 0]);
    assert_eq!(std::fs::read(inbox.join("tree/a/big")).unwrap(), vec![7; 9_000_000]);
    assert_eq!(std::fs::read(inbox.join("tree/small")).unwrap(), b"small");
    let mut names = names.into_inner().unwrap();
    names.sort();
    assert_eq!(names, ["tree/a/big", "tree/small"]);
    world.sending.close(CLOSE_CODE, "done");
}

#[test]
fn a_sender_that_is_not_on_the_list_is_refused_with_that_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (file, inbox) = (folder.path().join("file"), folder.path().join("inbox"));
    std::fs::create_dir(&inbox).unwrap();
    std::fs::write(&file, b"secret").unwrap();
    let world = World::new();
    let [sent, received] = world.transfer(&file, &inbox, AllowList::default(), &|_| {});
    assert!(matches!(sent, Err(TransferError::Refused(_))), "{sent:?}");
    assert!(received.is_err());
    assert_eq!(std::fs::read_dir(&inbox).unwrap().count(), 0);
}

#[test]
fn the_ends_agree_on_what_both_know() {
    assert_eq!(Revision::of(&World::new().sending), Revision::LATEST);
    let older = World::with_protocols(Some(vec![b"litz/1".to_vec()]));
    assert_eq!(Revision::of(&older.sending), Revision::First);
}
