use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn a_created_key_is_private_and_loads_as_the_same_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er/host.key");
    let created = KeyPair::load_or_create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(KeyPair::load_or_create(&path).unwrap().public(), created.public());
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
    let again = KeyPair::create(&path).unwrap_err();
    assert!(matches!(&again, KeyError::Write(_, error) if error.kind() == io::ErrorKind::AlreadyExists), "{again}");
}

#[test]
fn a_key_that_others_can_read_is_refused_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("host.key");
    KeyPair::create(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let error = KeyPair::load(&path).unwrap_err();
    assert!(matches!(error, KeyError::OpenToOthers(_)));
    assert!(error.to_string().contains("chmod 600"), "{error}");
}

#[test]
fn a_file_without_a_key_is_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("host.key");
    fs::write(&path, "not a key").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(KeyPair::load_or_create(&path), Err(KeyError::NoKeyIn(_))));
    assert_eq!(fs::read(&path).unwrap(), b"not a key");
}

#[test]
fn spki_is_the_der_of_rfc_8410_and_nothing_else() {
    // RFC 8410, section 10.1, example of an Ed25519 public key.
    let key = [
        0x19, 0xbf, 0x44, 0x09, 0x69, 0x84, 0xcd, 0xfe, 0x85, 0x41, 0xba, 0xc1, 0x67, 0xdc, 0x3b, 0x96, 0xc8, 0x50,
        0x86, 0xaa, 0x30, 0xb6, 0xb6, 0xcb, 0x0c, 0x5c, 0x38, 0xad, 0x70, 0x31, 0x66, 0xe1,
    ];
    let spki = PublicKey::from_bytes(key).to_spki();
    assert_eq!(spki[..12], [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00]);
    assert_eq!(PublicKey::from_spki(&spki).unwrap().as_bytes(), &key);
    assert!(PublicKey::from_spki(&spki[..43]).is_err());
    assert!(PublicKey::from_spki(&[spki.as_slice(), &[0]].concat()).is_err());
    let mut other = spki;
    other[8] = 0x71; // Ed448's arc
    assert!(PublicKey::from_spki(&other).is_err());
}

#[test]
fn keys_and_fingerprints_read_back_from_their_text() {
    let key = KeyPair::generate().unwrap().public();
    assert_eq!(key.to_string().parse::<PublicKey>().unwrap(), key);
    let fingerprint = key.fingerprint();
    assert_eq!(fingerprint.to_string().parse::<Fingerprint>().unwrap(), fingerprint);
    assert!(fingerprint.to_string().parse::<PublicKey>().is_err(), "a fingerprint is no key");
    assert!(fingerprint.to_string()[..58].parse::<Fingerprint>().is_err());
    assert_eq!(fingerprint.short().len(), 19);
}

#[test]
fn debug_shows_no_private_bytes() {
    let pair = KeyPair::generate().unwrap();
    let shown = format!("{pair:?}");
    assert_eq!(shown, format!("KeyPair {{ public: PublicKey({}), .. }}", pair.public()));
}
