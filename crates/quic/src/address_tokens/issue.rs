//! The server's side: tokens are made, and each is accepted once.
//!
//! ```text
//! kind (8) | nonce (96) | sealed: issued at (64) | 4 x IP address (128) | tag (128)
//! ```
//!
//! A token is valid for the addresses in it, whatever the port: a later connection of the same client
//! has another one (RFC 9000, section 8.1.4). Every token is equally long and, sealed with a nonce of
//! its own, looks random: it tells an observer nothing but that a server of this implementation issued
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use units::{Duration, Instant};
use wire::quic::Version;

use super::sealed::{IP_LEN, OVERHEAD_LEN, TokenNonce, ip_bytes, seal, unseal};

/// Distinguishes these tokens from those of Retry packets (RFC 9000, section 8.1.1), and those of one
/// version of QUIC from those of another, which does not accept them (RFC 9369, section 5).
const fn kind(version: Version) -> u8 {
    match version {
        Version::V1 => 0x5e,
        Version::V2 => 0x5f,
    }
}

const ISSUED_LEN: usize = 8;

/// The client's addresses in a token, at most: the latest that were validated (multipath draft-21,
/// section 3.1.3). Few clients have more interfaces, and each costs 16 bytes of the client's first
/// packet.
pub(crate) const TOKEN_ADDRESSES_MAX: usize = 4;

/// Tokens that one connection issues, at most, so that a client that moves all the time gets no
/// endless sequence of them.
const TOKENS_PER_CONNECTION_MAX: u8 = 8;

const TOKEN_LEN: usize = OVERHEAD_LEN + ISSUED_LEN + TOKEN_ADDRESSES_MAX * IP_LEN;

/// How long a token is valid (RFC 9000, section 8.1.3: it expires). A client that comes back within a
/// day is served; a longer lifetime means a longer memory of used tokens.
pub(crate) const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The clock that issued a token may be this much ahead: other drivers of the endpoint have taken the
/// time a little later, and the system's clock may have been set back since.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(60);

/// Used tokens that are remembered, at most, about a megabyte. If there are more within two lifetimes,
/// further tokens count as none until old ones are forgotten: those clients take a round trip more, if
/// the server is busy.
const USED_MAX: usize = 1 << 16;

/// The secret with which the endpoints behind one address issue tokens, and their memory of used ones.
pub(crate) struct TokenKeeper {
    key: [u8; 32],
    /// The time since the Unix epoch at [`Instant::ZERO`], so that tokens outlive the process if the
    /// key does.
    zero_at: Duration,
    used: Mutex<UsedTokens>,
}

impl TokenKeeper {
    pub(crate) fn new(key: [u8; 32], zero_at: Duration) -> Self {
        Self { key, zero_at, used: Mutex::default() }
    }

    fn nanos(&self, now: Instant) -> u64 {
        self.zero_at.as_nanos().saturating_add(now.as_nanos())
    }

    /// A token for a client with these addresses; further ones than it holds are left out.
    pub(crate) fn issue(&self, now: Instant, version: Version, nonce: TokenNonce, addresses: &[IpAddr]) -> Vec<u8> {
        let kind = kind(version);
        let mut plain = self.nanos(now).to_be_bytes().to_vec();
        // All tokens are equally long: the addresses are repeated.
        for ip in addresses.iter().cycle().take(TOKEN_ADDRESSES_MAX) {
            plain.extend_from_slice(&ip_bytes(*ip));
        }
        seal(kind, &self.key, nonce, &plain, &[kind])
    }

    /// Whether a token validates the address of a client that begins in `version`. It does so once
    /// (RFC 9000, section 8.1.4).
    pub(crate) fn redeem(&self, now: Instant, version: Version, ip: IpAddr, token: &[u8]) -> bool {
        let kind = kind(version);
        if token.len() != TOKEN_LEN || token[0] != kind {
            return false;
        }
        let Some((nonce, plain)) = unseal(&self.key, token, &[kind]) else { return false };
        let (issued, addresses) = plain.split_first_chunk::<ISSUED_LEN>().expect("the length was checked");
        let (issued, now) = (u64::from_be_bytes(*issued), self.nanos(now));
        let is_current = now.saturating_sub(issued) <= TOKEN_LIFETIME.as_nanos()
            && issued.saturating_sub(now) <= CLOCK_SKEW_MAX.as_nanos();
        let own = ip_bytes(ip);
        is_current
            && addresses.chunks_exact(IP_LEN).any(|known| known == own)
            && self.used.lock().unwrap_or_else(PoisonError::into_inner).is_first_use(now, issued, nonce)
    }
}

/// The used tokens that have not expired, by the lifetime in which they were issued.
#[derive(Default)]
struct UsedTokens {
    periods: BTreeMap<u64, BTreeSet<TokenNonce>>,
}

impl UsedTokens {
    /// Notes a token; false if it was used before, or no more can be remembered.
    fn is_first_use(&mut self, now: u64, issued: u64, nonce: TokenNonce) -> bool {
        let oldest = (now / TOKEN_LIFETIME.as_nanos()).saturating_sub(1);
        self.periods = self.periods.split_off(&oldest);
        let count: usize = self.periods.values().map(BTreeSet::len).sum();
        count < USED_MAX && self.periods.entry(issued / TOKEN_LIFETIME.as_nanos()).or_default().insert(nonce)
    }
}

/// The tokens that a connection has issued.
#[derive(Debug, Default)]
pub(crate) struct IssuedTokens {
    /// The client's validated addresses, the latest first: the contents of the last token.
    addresses: Vec<IpAddr>,
    count: u8,
}

impl IssuedTokens {
    /// The addresses of the next token, since `ip` was validated. None if the last one is valid for it,
    /// or there were too many.
    pub(crate) fn next(&self, ip: IpAddr) -> Option<Vec<IpAddr>> {
        if self.addresses.contains(&ip) || self.count == TOKENS_PER_CONNECTION_MAX {
            return None;
        }
        Some(std::iter::once(ip).chain(self.addresses.iter().copied()).take(TOKEN_ADDRESSES_MAX).collect())
    }

    /// A token for these addresses was issued.
    pub(crate) fn on_issued(&mut self, addresses: Vec<IpAddr>) {
        self.addresses = addresses;
        self.count += 1;
    }

    /// The number of tokens.
    pub(crate) fn count(&self) -> u8 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    fn keeper(zero_at: Duration) -> TokenKeeper {
        TokenKeeper::new([5; 32], zero_at)
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn at(span: Duration) -> Instant {
        Instant::ZERO + span
    }

    #[test]
    fn a_token_is_accepted_once_from_any_of_its_addresses_until_it_expires() {
        let issue = |number: u8| keeper(Duration::ZERO).issue(at(HOUR), Version::V1, [number; 12], &[ip(1), ip(2)]);
        let token = issue(1);
        assert_eq!(token.len(), TOKEN_LEN);
        let keeper = keeper(Duration::ZERO);
        let expires = at(HOUR) + TOKEN_LIFETIME;
        assert!(!keeper.redeem(at(HOUR), Version::V1, ip(3), &token), "another address");
        assert!(!keeper.redeem(expires + Duration::from_nanos(1), Version::V1, ip(1), &token), "expired");
        assert!(keeper.redeem(expires, Version::V1, ip(2), &token), "at the end of its life");
        assert!(!keeper.redeem(expires, Version::V1, ip(2), &token), "used");
        assert!(!keeper.redeem(expires, Version::V1, ip(1), &token), "used, from another of its addresses");
        assert!(keeper.redeem(expires, Version::V1, ip(1), &issue(2)), "another token");
        assert!(!keeper.redeem(Instant::ZERO, Version::V1, ip(1), &issue(3)), "of the future");
        assert!(
            !TokenKeeper::new([6; 32], Duration::ZERO).redeem(at(HOUR), Version::V1, ip(1), &issue(4)),
            "another server's"
        );
        for index in 0..token.len() {
            let mut forged = issue(5);
            forged[index] ^= 1;
            assert!(!keeper.redeem(at(HOUR), Version::V1, ip(1), &forged), "byte {index}");
        }
        assert!(!keeper.redeem(at(HOUR), Version::V1, ip(1), &issue(6)[..TOKEN_LEN - 1]));
        assert!(!keeper.redeem(at(HOUR), Version::V2, ip(1), &issue(8)), "of another version");
        let mapped = "::ffff:192.0.2.1".parse().expect("an address");
        assert!(
            keeper.redeem(at(HOUR), Version::V1, mapped, &issue(7)),
            "the same address at a socket of both families"
        );
    }

    #[test]
    fn tokens_look_random_and_are_equally_long() {
        let keeper = keeper(Duration::ZERO);
        let one = keeper.issue(at(HOUR), Version::V1, [1; 12], &[ip(1)]);
        // The same client and time, with more addresses and with the same.
        for addresses in [&[ip(1), ip(2), ip(3), ip(4), ip(5)][..], &[ip(1)]] {
            let other = keeper.issue(at(HOUR), Version::V1, [2; 12], addresses);
            assert_eq!(one.len(), other.len());
            let equal = std::iter::zip(&one[13..], &other[13..]).filter(|(one, other)| one == other).count();
            assert!(equal < 10, "{equal} of {} bytes are equal", one.len());
        }
    }

    #[test]
    fn a_token_outlives_a_process_whose_key_does() {
        let day = TOKEN_LIFETIME;
        let token = keeper(day * 100).issue(at(HOUR), Version::V1, [1; 12], &[ip(1)]);
        // Another process, whose clock starts at zero again.
        assert!(keeper(day * 100 + HOUR * 2).redeem(at(HOUR), Version::V1, ip(1), &token));
        assert!(!keeper(day * 101 + HOUR).redeem(at(HOUR), Version::V1, ip(1), &token), "expired meanwhile");
    }

    #[test]
    fn the_memory_of_used_tokens_is_bounded_and_recovers() {
        let mut used = UsedTokens::default();
        let day = TOKEN_LIFETIME.as_nanos();
        let nonce = |number: usize| {
            let mut nonce = [0; 12];
            nonce[..8].copy_from_slice(&(number as u64).to_be_bytes());
            nonce
        };
        for number in 0..USED_MAX {
            assert!(used.is_first_use(day, day, nonce(number)));
        }
        assert!(!used.is_first_use(day, day, nonce(USED_MAX)), "one more is not remembered, so not accepted");
        assert!(!used.is_first_use(2 * day, day, nonce(0)), "still known while it may be valid");
        assert!(used.is_first_use(3 * day, 3 * day, nonce(USED_MAX)), "the expired ones are forgotten");
        assert_eq!(used.periods.values().map(BTreeSet::len).sum::<usize>(), 1);
    }

    #[test]
    fn a_connection_issues_one_token_for_each_new_address_and_not_many() {
        let mut issued = IssuedTokens::default();
        for last in 1..=TOKENS_PER_CONNECTION_MAX {
            let addresses = issued.next(ip(last)).expect("a new address");
            assert_eq!((addresses[0], addresses.len()), (ip(last), usize::from(last).min(TOKEN_ADDRESSES_MAX)));
            issued.on_issued(addresses);
            assert_eq!(issued.next(ip(last)), None, "the token is valid for it");
        }
        assert_eq!(issued.next(ip(100)), None, "the limit");
    }
}
