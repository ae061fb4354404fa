use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> PathSpec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn interface(name: &str) -> PathSpec {
    PathSpec {
        local: LocalSpec::Interface(name.to_owned()),
        local_port: 0,
        remote: None,
        remote_port: None,
        backup: false,
    }
}

fn address(ip: &str) -> PathSpec {
    PathSpec { local: LocalSpec::Address(ip.parse().unwrap()), ..interface("") }
}

#[test]
fn every_form_is_read_as_documented() {
    let ip = |text: &str| Some(text.parse().unwrap());
    let table = [
        ("eth0", interface("eth0")),
        ("eth0,backup", PathSpec { backup: true, ..interface("eth0") }),
        ("eth0:5000", PathSpec { local_port: 5000, ..interface("eth0") }),
        ("eth0-192.0.2.9", PathSpec { remote: ip("192.0.2.9"), ..interface("eth0") }),
        (
            "eth0:7-192.0.2.9:8,backup",
            PathSpec {
                local_port: 7,
                remote: ip("192.0.2.9"),
                remote_port: Some(8),
                backup: true,
                ..interface("eth0")
            },
        ),
        ("192.0.2.1", address("192.0.2.1")),
        ("192.0.2.1:5", PathSpec { local_port: 5, ..address("192.0.2.1") }),
        ("192.0.2.1-192.0.2.9", PathSpec { remote: ip("192.0.2.9"), ..address("192.0.2.1") }),
        ("2001:db8::1", address("2001:db8::1")),
        ("[2001:db8::1]", address("2001:db8::1")),
        ("[2001:db8::1]:5", PathSpec { local_port: 5, ..address("2001:db8::1") }),
        ("2001:db8::1-2001:db8::2", PathSpec { remote: ip("2001:db8::2"), ..address("2001:db8::1") }),
        (
            "[2001:db8::1]:5-[2001:db8::2]:6",
            PathSpec { local_port: 5, remote: ip("2001:db8::2"), remote_port: Some(6), ..address("2001:db8::1") },
        ),
        ("eth0-fe80::2", PathSpec { remote: ip("fe80::2"), ..interface("eth0") }),
        // Interface names may contain other characters.
        ("br-12ab34cd", interface("br-12ab34cd")),
        ("br-1.20", interface("br-1.20")),
        ("br-lan.20-10.0.0.1", PathSpec { remote: ip("10.0.0.1"), ..interface("br-lan.20") }),
    ];
    for (text, expected) in table {
        assert_eq!(parse(text), expected, "{text}");
        assert_eq!(parse(&expected.to_string()), expected, "{text} and back");
    }
}

#[test]
fn errors_name_the_fault_and_the_expected_form() {
    let table = [
        ("", "LOCAL-REMOTE"),
        ("eth0-", "LOCAL-REMOTE"),
        ("-192.0.2.1", "LOCAL-REMOTE"),
        (",backup", "LOCAL-REMOTE"),
        ("192.0.2.300", "no address"),
        ("eth0-192.0.2.300", "no address"),
        ("[2001:db8::1", "[2001:db8::1]:4433"),
        ("[2001:db8::1]5", "no address"),
        ("[192.0.2.1]:5", "no address"),
        ("2001:db8::1::5", "no address"),
        ("eth0:0", "1 to 65535"),
        ("eth0:70000", "1 to 65535"),
        ("192.0.2.1:", "1 to 65535"),
        ("eth0,spare", "backup"),
        ("eth0,backup,backup", "once"),
        ("eth0,", "backup"),
        ("a-name-that-is-far-too-long", "15 characters"),
        ("eth 0", "ip -brief address"),
        ("eth0-host.example", "15 characters"),
        ("192.0.2.1-2001:db8::1", "one family"),
        ("0.0.0.0", "one host's"),
        ("eth0-224.0.0.1", "one host's"),
        ("::", "one host's"),
    ];
    for (text, words) in table {
        let error = text.parse::<PathSpec>().expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn no_text_panics_and_parsed_text_is_written_back(text in "([a-z0-9.:,\\[\\]-]|backup|::){0,24}") {
        if let Ok(spec) = text.parse::<PathSpec>() {
            prop_assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,40}") {
        if let Err(error) = text.parse::<PathSpec>() {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
