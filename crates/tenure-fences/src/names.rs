//! The name of a resource: what the greatest token is kept under.

use crate::error::{FenceError, Result};

/// Checks a resource's name by the rules of a key.
#[allow(dead_code, reason = "which resources use it depends on the features")]
pub(crate) fn resource(name: impl Into<String>) -> Result<String> {
    let name = name.into();
    match tenure::Key::new(&name) {
        Ok(_) => Ok(name),
        Err(error) => {
            let why = error.to_string().replace("the key", "the resource's name");
            Err(FenceError::Invalid(why))
        }
    }
}
