use proptest::prelude::*;

use super::*;

fn ticket() -> Ticket {
    Ticket {
        addresses: vec![
            TicketAddress::Socket("192.0.2.7:4433".parse().unwrap()),
            TicketAddress::Socket("[2001:db8::7]:4433".parse().unwrap()),
            TicketAddress::Name("files.example.org".into(), 65535),
        ],
        receiver: Fingerprint::from_bytes([0xab; 32]),
        secret: Secret::from_bytes(*b"sixteen bytes ok"),
        expires_unix: 1_900_000_000,
    }
}

#[test]
fn a_ticket_reads_back_from_its_text_in_either_case_and_with_space_around() {
    let text = ticket().to_text().unwrap();
    assert!(text.starts_with("litz1") && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
    assert_eq!(text.parse::<Ticket>().unwrap(), ticket());
    assert_eq!(format!("  {}\n", text.to_uppercase()).parse::<Ticket>().unwrap(), ticket());
}

#[test]
fn a_ticket_with_one_address_fits_a_line() {
    let one = Ticket { addresses: ticket().addresses[..1].to_vec(), ..ticket() };
    assert_eq!(one.to_text().unwrap().len(), 109);
}

#[test]
fn every_single_wrong_character_is_detected() {
    let text = ticket().to_text().unwrap();
    for index in 5..text.len() {
        let mut wrong = text.clone().into_bytes();
        wrong[index] = if wrong[index] == b'q' { b'z' } else { b'q' };
        let error = String::from_utf8(wrong).unwrap().parse::<Ticket>().unwrap_err();
        assert_eq!(error, TicketError::Checksum, "character {index}");
    }
}

#[test]
fn every_truncation_is_detected() {
    let text = ticket().to_text().unwrap();
    for len in 0..text.len() {
        let error = text[..len].parse::<Ticket>().unwrap_err();
        let expected = [TicketError::NotATicket, TicketError::CutOff, TicketError::Checksum];
        assert!(expected.contains(&error), "{len}: {error:?}");
    }
}

#[test]
fn errors_name_the_fault() {
    let text = ticket().to_text().unwrap();
    assert_eq!("https://example.org".parse::<Ticket>(), Err(TicketError::NotATicket));
    assert_eq!("".parse::<Ticket>(), Err(TicketError::NotATicket));
    assert_eq!("lit€z".parse::<Ticket>(), Err(TicketError::NotATicket));
    assert_eq!(text.replacen("litz1", "litz2", 1).parse::<Ticket>(), Err(TicketError::Version(2)));
    let spaced = format!("{} {}", &text[..20], &text[20..]);
    assert_eq!(spaced.parse::<Ticket>(), Err(TicketError::Character { index: 20, character: ' ' }));
    assert_eq!(format!("litz1{}", "a".repeat(10_000)).parse::<Ticket>(), Err(TicketError::TooLong));
}

#[test]
fn invalid_addresses_are_not_encoded() {
    let with = |address| Ticket { addresses: vec![address], ..ticket() }.to_text();
    assert!(with(TicketAddress::Socket("192.0.2.7:0".parse().unwrap())).is_err());
    assert!(with(TicketAddress::Name("a b".into(), 1)).is_err());
    assert!(with(TicketAddress::Name(String::new(), 1)).is_err());
    assert!(with(TicketAddress::Name("x".repeat(254), 1)).is_err());
    assert!(Ticket { addresses: vec![], ..ticket() }.to_text().is_err());
    assert!(Ticket { expires_unix: 1 << 40, ..ticket() }.to_text().is_err());
}

#[test]
fn the_secret_shows_nowhere_but_in_the_text() {
    let shown = format!("{:?} {:?}", ticket(), ticket().secret);
    assert!(shown.contains("Secret(..)") && !shown.contains("115") && !shown.contains("sixteen"), "{shown}");
}

#[test]
fn expiry_is_the_first_second_of_refusal() {
    assert!(!ticket().is_expired(1_899_999_999));
    assert!(ticket().is_expired(1_900_000_000));
}

proptest! {
    #[test]
    fn any_text_is_parsed_without_panic(text in "\\PC{0,200}") {
        let _ = text.parse::<Ticket>();
    }

    #[test]
    fn content_under_a_right_checksum_is_refused_or_reads_back(content in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = content.clone();
        bytes.extend_from_slice(&checksum(&content));
        let text = format!("litz1{}", base32::encode(&bytes));
        if let Ok(ticket) = text.parse::<Ticket>() {
            prop_assert_eq!(ticket.to_text().unwrap(), text);
        }
    }

    #[test]
    fn any_addresses_read_back(
        ports in prop::collection::vec(1..=u16::MAX, 1..=ADDRESSES_MAX),
        ip in any::<u128>(),
        expires_unix in 0_u64..1 << 40,
    ) {
        let addresses = ports.iter().enumerate().map(|(index, port)| match index % 3 {
            0 => TicketAddress::Socket(SocketAddr::new(Ipv4Addr::from(ip as u32).into(), *port)),
            1 => TicketAddress::Socket(SocketAddr::new(Ipv6Addr::from(ip).into(), *port)),
            _ => TicketAddress::Name(format!("host-{port}.example"), *port),
        }).collect();
        let ticket = Ticket { addresses, expires_unix, ..ticket() };
        prop_assert_eq!(ticket.to_text().unwrap().parse::<Ticket>().unwrap(), ticket);
    }
}
