//! Values that must not be guessed: connection IDs and reset tokens.
//!
//! The key is an argument: from the operating system in production, from the seed in tests. The
//! values are a keyed function of a counter, so the same key gives the same values.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::hmac;
use units::{Duration, Instant};
use wire::quic::{ConnectionId, Version};

use crate::address_tokens::issue::TokenKeeper;
use crate::control::ids::{LOCAL_ID_LEN, ResetToken};

/// Derives unguessable values from a key.
#[derive(Clone)]
pub struct SecretSource {
    /// As bytes: a prepared key takes more than a kilobyte, and each connection has a source.
    key: [u8; 32],
    counter: u64,
    shard: Shard,
    /// None in a replay.
    common: Option<Arc<CommonKeys>>,
}

/// The keys that all sources split from one share.
#[derive(Clone)]
struct CommonKeys {
    /// Makes the reset tokens, if the endpoint has a key that outlives it.
    reset: Option<[u8; 32]>,
    /// Protects the tokens of Retry packets. Every endpoint behind one address takes those of the
    /// others.
    token: [u8; 32],
    /// Issues tokens for later connections, if the endpoint does.
    keeper: Option<Arc<TokenKeeper>>,
}

/// One of several endpoints behind one address, as the connection IDs encode it.
#[derive(Debug, Clone, Copy)]
struct Shard {
    index: u8,
    count: u8,
}

/// The most endpoints behind one address. Each gets some values of a byte, and about as many as
/// another.
pub const SHARDS_MAX: usize = 64;

/// Which of `count` endpoints behind one address has made a connection ID.
pub(crate) fn shard_of(id: &[u8], count: usize) -> Option<usize> {
    id.first().map(|first| usize::from(*first) % count)
}

fn derive_with(key: &[u8; 32], label: &[u8], input: &[u8]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    context.update(label);
    context.update(input);
    context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretSource")
    }
}

impl SecretSource {
    /// A source whose values cannot be predicted without `key`.
    pub fn new(key: &[u8; 32]) -> Self {
        let token = derive_with(key, b"address validation", &[]);
        let common = CommonKeys { reset: None, token, keeper: None };
        Self { key: *key, counter: 0, shard: Shard { index: 0, count: 1 }, common: Some(Arc::new(common)) }
    }

    /// A separate source for endpoint `index` of `count` behind one address. Its connection IDs
    /// encode the endpoint, for [`Endpoint::shard_of`](crate::Endpoint::shard_of), and reveal
    /// nothing else.
    ///
    /// # Panics
    /// If `count` is more than [`SHARDS_MAX`], or `index` is out of range.
    #[must_use]
    pub fn split_for(&self, index: usize, count: usize) -> Self {
        assert!(index < count && count <= SHARDS_MAX, "{index} of {count}");
        let shard = Shard { index: index as u8, count: count as u8 };
        Self { key: self.derive(b"shard", &[index as u8]), counter: 0, shard, common: self.common.clone() }
    }

    /// Key, counter, index and count, for a journal.
    pub(crate) fn parts(&self) -> (&[u8; 32], u64, u8, u8) {
        (&self.key, self.counter, self.shard.index, self.shard.count)
    }

    /// The source with these parts, if they are valid.
    pub(crate) fn from_parts(key: [u8; 32], counter: u64, index: u8, count: u8) -> Option<Self> {
        let can_be = index < count && usize::from(count) <= SHARDS_MAX && counter < u64::MAX / 2;
        can_be.then_some(Self { key, counter, shard: Shard { index, count }, common: None })
    }

    /// A source whose reset tokens follow from `key` and the connection ID alone, so that an
    /// endpoint with the same key can reset connections that it has forgotten (RFC 9000, section
    /// 10.3.2).
    #[must_use]
    pub fn with_reset_key(mut self, key: &[u8; 32]) -> Self {
        if let Some(common) = &mut self.common {
            Arc::make_mut(common).reset = Some(*key);
        }
        self
    }

    /// A source whose servers issue tokens with which clients prove their address in later connections
    /// (NEW_TOKEN: RFC 9000, section 8.1.3). `zero_at` is the time since the Unix epoch at
    /// [`Instant::ZERO`]. With a [reset key](Self::with_reset_key), set before, an endpoint that is
    /// started again accepts the tokens that it has issued.
    #[must_use]
    pub fn with_address_tokens(mut self, zero_at: Duration) -> Self {
        if let Some(common) = &mut self.common {
            let common = Arc::make_mut(common);
            let key = derive_with(common.reset.as_ref().unwrap_or(&common.token), b"later connections", &[]);
            common.keeper = Some(Arc::new(TokenKeeper::new(key, zero_at)));
        }
        self
    }

    fn keeper(&self) -> Option<&TokenKeeper> {
        self.common.as_ref()?.keeper.as_deref()
    }

    /// A token for a client with these addresses, the `number`th of its connection, whose source this
    /// is. None unless the endpoint issues them.
    pub(crate) fn address_token(
        &self,
        now: Instant,
        version: Version,
        number: u8,
        addresses: &[IpAddr],
    ) -> Option<Vec<u8>> {
        let keeper = self.keeper()?;
        let nonce = self.derive(b"token nonce", &[number]);
        Some(keeper.issue(now, version, *nonce.first_chunk().expect("12 of 32 bytes"), addresses))
    }

    /// Whether a token of an earlier connection validates a client's address. It does so once.
    pub(crate) fn redeem_address_token(&self, now: Instant, version: Version, ip: IpAddr, token: &[u8]) -> bool {
        self.keeper().is_some_and(|keeper| keeper.redeem(now, version, ip, token))
    }

    fn reset_key(&self) -> Option<&[u8; 32]> {
        self.common.as_ref().and_then(|common| common.reset.as_ref())
    }

    /// Whether the reset tokens follow from a key of their own.
    pub(crate) fn has_reset_key(&self) -> bool {
        self.reset_key().is_some()
    }

    /// The key of address validation tokens. None in a replay.
    pub(crate) fn token_key(&self) -> Option<&[u8; 32]> {
        self.common.as_ref().map(|common| &common.token)
    }

    /// Whether this source may have made a connection ID.
    pub(crate) fn is_of_shard(&self, id: &[u8]) -> bool {
        shard_of(id, usize::from(self.shard.count)) == Some(usize::from(self.shard.index))
    }

    fn derive(&self, label: &[u8], input: &[u8]) -> [u8; 32] {
        derive_with(&self.key, label, input)
    }

    fn next(&mut self, label: &[u8]) -> [u8; 32] {
        self.counter += 1;
        self.derive(label, &self.counter.to_be_bytes())
    }

    /// A separate source for one connection.
    pub(crate) fn split(&mut self) -> Self {
        Self { key: self.next(b"connection"), counter: 0, shard: self.shard, common: self.common.clone() }
    }

    /// A connection ID of ours.
    pub(crate) fn connection_id(&mut self) -> ConnectionId {
        let mut id = self.next(b"id");
        let Shard { index, count } = self.shard;
        // Values of the byte are in groups of `count`, one for each shard. The last group may be
        // incomplete: the one before it is used then.
        let (rest, first) = (id[0] % count, id[0] - id[0] % count);
        id[0] =
            if count == 1 { first + rest } else { first.checked_add(index).unwrap_or_else(|| first - count + index) };
        ConnectionId::new(&id[..LOCAL_ID_LEN]).expect("eight bytes are a connection ID")
    }

    /// The stateless reset token of this ID (RFC 9000, section 10.3.2).
    pub(crate) fn reset_token(&self, id: &ConnectionId) -> ResetToken {
        let key = self.reset_key().unwrap_or(&self.key);
        *derive_with(key, b"reset", id.as_slice()).first_chunk().expect("16 of 32 bytes")
    }

    /// A function of a token that shows nothing of it. A table of such values can be searched
    /// without concern for how long that takes (RFC 9000, section 10.3.1).
    pub(crate) fn disguised(&self, token: &ResetToken) -> ResetToken {
        *self.derive(b"known reset", token).first_chunk().expect("16 of 32 bytes")
    }

    /// Bytes that cannot be predicted.
    pub(crate) fn noise(&mut self) -> [u8; 32] {
        self.next(b"noise")
    }

    /// A seed for public randomness.
    pub(crate) fn seed(&mut self) -> u64 {
        u64::from_le_bytes(*self.next(b"seed").first_chunk().expect("8 of 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_encode_their_shard_and_are_spread_over_all_values() {
        for count in [1_usize, 2, 3, 5, 64] {
            for index in 0..count {
                let mut secrets = SecretSource::new(&[7; 32]).split_for(index, count).split();
                let firsts: std::collections::BTreeSet<u8> = (0..4000)
                    .map(|_| {
                        let id = secrets.connection_id();
                        assert_eq!(shard_of(id.as_slice(), count), Some(index));
                        id.as_slice()[0]
                    })
                    .collect();
                assert!(firsts.len() >= 255 / count, "{} of {count}", firsts.len());
            }
        }
    }
}
