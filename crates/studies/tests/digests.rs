//! Digests of the results of every study in a quick run, kept in `digests.txt`. A digest covers the
//! numbers and truth values of the outcome, in order, and no text: rewording a study keeps its
//! line, changing a model does not.
//!
//! `LITZ_DIGESTS=keep` rewrites the file.

use std::path::Path;

use serde_json::Value;
use studies::{Effort, Options};

/// Hashes everything that is not text, in order.
fn collect(value: &Value, hasher: &mut blake3::Hasher, count: &mut usize) {
    match value {
        Value::Object(fields) => fields.values().for_each(|value| collect(value, hasher, count)),
        Value::Array(values) => {
            hasher.update(b"[");
            values.iter().for_each(|value| collect(value, hasher, count));
            hasher.update(b"]");
        }
        Value::Number(_) | Value::Bool(_) | Value::Null => {
            hasher.update(value.to_string().as_bytes());
            hasher.update(b",");
            *count += 1;
        }
        Value::String(_) => {
            hasher.update(b"s");
        }
    }
}

#[test]
fn every_study_finds_the_numbers_that_are_kept() {
    let options =
        Options { seed: 1, replications: 2, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 2 };
    let mut text = String::new();
    for study in studies::all() {
        let outcome = serde_json::to_value(study.run(&options)).expect("outcomes are plain data");
        let (mut hasher, mut count) = (blake3::Hasher::new(), 0);
        collect(&outcome, &mut hasher, &mut count);
        text.push_str(&format!("{}: {count} {}\n", study.id(), &hasher.finalize().to_hex()[..32]));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/digests.txt");
    if std::env::var("LITZ_DIGESTS").is_ok_and(|setting| setting == "keep") {
        std::fs::write(&file, &text).expect("the file can be written");
    }
    let kept = std::fs::read_to_string(&file).expect("the file is there");
    for (kept, made) in kept.lines().zip(text.lines()) {
        assert_eq!(kept, made, "if that is intended, LITZ_DIGESTS=keep rewrites the file");
    }
    assert_eq!(kept.lines().count(), text.lines().count(), "as many studies as are kept");
}
