//! Where leases live when nobody says where: the user's state folder.

use std::ffi::OsString;
use std::path::PathBuf;

use tenure::{Error, Result};

/// The store that is meant when no URL is given: SQLite in the user's state folder,
/// `$XDG_STATE_HOME/tenure/leases.db`, else `~/.local/state/tenure/leases.db`.
pub fn default_url() -> Result<String> {
    default_url_in(&|name| std::env::var_os(name))
}

type Environment<'e> = &'e dyn Fn(&str) -> Option<OsString>;

fn default_url_in(environment: Environment<'_>) -> Result<String> {
    // The specification says that a relative path is to be ignored.
    let folder = environment("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute());
    let folder = match folder {
        Some(folder) => folder,
        None => home_in(environment)?.join(".local/state"),
    };
    let path = folder.join("tenure").join("leases.db");
    match path.to_str() {
        Some(path) if !path.contains('?') => Ok(format!("sqlite:{path}")),
        _ => Err(Error::invalid(format!(
            "the state folder {} cannot stand in a URL: say where leases live with sqlite:PATH",
            folder.display()
        ))),
    }
}

/// The user's home folder.
#[cfg(feature = "sqlite")]
pub(crate) fn home() -> Result<PathBuf> {
    home_in(&|name| std::env::var_os(name))
}

fn home_in(environment: Environment<'_>) -> Result<PathBuf> {
    let home = environment("HOME")
        .map(PathBuf::from)
        .filter(|home| home.is_absolute());
    home.ok_or_else(|| {
        Error::invalid(
            "neither XDG_STATE_HOME nor HOME names a folder: say where leases live with sqlite:PATH",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(state: Option<&str>, home: Option<&str>) -> Result<String> {
        default_url_in(&|name| match name {
            "XDG_STATE_HOME" => state.map(OsString::from),
            "HOME" => home.map(OsString::from),
            _ => None,
        })
    }

    #[test]
    fn state_folder_then_home() {
        let in_state = "sqlite:/s/tenure/leases.db";
        assert_eq!(url(Some("/s"), Some("/h")).unwrap(), in_state);
        let in_home = "sqlite:/h/.local/state/tenure/leases.db";
        assert_eq!(url(None, Some("/h")).unwrap(), in_home);
        assert_eq!(url(Some(""), Some("/h")).unwrap(), in_home);
        assert_eq!(url(Some("relative"), Some("/h")).unwrap(), in_home);
        assert!(url(None, None).is_err());
        assert!(url(None, Some("")).is_err());
    }
}
