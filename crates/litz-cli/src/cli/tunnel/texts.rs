//! A value of a file of settings that is a text or a list of texts, each with its place in the file.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use toml::Spanned;

/// One text or several, as an option that may be repeated has them.
#[derive(Default)]
pub(in crate::cli) struct Texts(Vec<Spanned<String>>);

impl Texts {
    /// The texts, each with its place.
    pub(in crate::cli) fn as_slice(&self) -> &[Spanned<String>] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Spanned::<OneOrMore>::deserialize(deserializer)?;
        let at = value.span();
        Ok(Self(match value.into_inner() {
            OneOrMore::One(text) => vec![Spanned::new(at, text)],
            OneOrMore::More(texts) => texts,
        }))
    }
}

enum OneOrMore {
    One(String),
    More(Vec<Spanned<String>>),
}

// Derived code for an untagged enumeration would lose the places.
impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMoreVisitor)
    }
}

struct OneOrMoreVisitor;

impl<'de> Visitor<'de> for OneOrMoreVisitor {
    type Value = OneOrMore;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in quotes or a list of such texts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OneOrMore, E> {
        Ok(OneOrMore::One(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMore, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            texts.push(text);
        }
        Ok(OneOrMore::More(texts))
    }
}
