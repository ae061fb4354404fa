//! Reading the costs of a profile from its file.

use std::path::Path;

use scenario::simulated::{Costs, PROFILE_BYTES_MAX};

use super::bounded::read_text;

/// Reads the costs of a profile.
///
/// # Errors
/// A message for the user.
pub(crate) fn read_costs(path: &Path) -> Result<Costs, String> {
    let text = read_text(path, PROFILE_BYTES_MAX as u64);
    let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Costs::from_profile(&text).map_err(|error| format!("{}: {error}", path.display()))
}
