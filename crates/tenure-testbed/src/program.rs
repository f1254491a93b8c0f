//! Which server programs this machine has, and what is said when one is missing.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where distributions put server programs that are not on everyone's PATH.
const MORE_FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// A store's servers as the environment knows them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// For people: "PostgreSQL".
    pub(crate) name: &'static str,
    /// Names the user's own server.
    pub(crate) variable: &'static str,
    /// On Debian.
    pub(crate) packages: &'static str,
}

impl Kind {
    /// The user's own server, from the environment.
    pub(crate) fn own_url(self) -> Option<String> {
        env::var(self.variable).ok().filter(|url| !url.is_empty())
    }

    /// The programs, or nothing after it was said that tests are not run and why. With
    /// `CI` set, a missing program is a failure.
    pub(crate) fn need(self, programs: &[&str]) -> Option<Vec<PathBuf>> {
        if self.own_url().is_some() {
            let Self { name, variable, .. } = self;
            say(&format!(
                "NOT RUN: needs a {name} server of its own to break, and {variable} names yours"
            ));
            return None;
        }
        let mut found = Vec::new();
        for program in programs {
            match find(program) {
                Some(path) => found.push(path),
                None => {
                    self.missing(program);
                    return None;
                }
            }
        }
        Some(found)
    }

    fn missing(self, program: &str) {
        let Self {
            name,
            variable,
            packages,
        } = self;
        let text = format!(
            "no {program} on this machine: install it (on Debian: apt-get install {packages}), \
             or name a {name} server of yours in {variable}"
        );
        assert!(!is_ci(), "{text}");
        say(&format!("NOT RUN: {text}"));
    }
}

fn is_ci() -> bool {
    env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false" && value != "0")
}

/// One line that is seen even though the test passes: the test harness holds back only
/// what is printed by macros.
fn say(text: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "{test}: {text}");
}

/// The program on the PATH or where distributions hide it.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(MORE_FOLDERS.map(PathBuf::from));
    let mut folders: Vec<PathBuf> = folders.collect();
    folders.extend(postgres_folders());
    let mut paths = folders.iter().map(|folder| folder.join(program));
    paths.find(|path| path.is_file())
}

/// Debian keeps several versions of PostgreSQL side by side: the newest first.
fn postgres_folders() -> Vec<PathBuf> {
    let versions = Path::new("/usr/lib/postgresql").read_dir();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, path)| path).collect()
}

/// Says that libfaketime is missing, as for a server.
pub(crate) fn missing_library() {
    let text = "no libfaketime on this machine: install it (on Debian: apt-get install faketime)";
    assert!(!is_ci(), "{text}");
    say(&format!("NOT RUN: {text}"));
}

/// Says that a server was not built yet, as for one that is not installed.
pub(crate) fn not_built(name: &str, script: &str) {
    let text = format!("{name} was not built on this machine: run {script}");
    assert!(!is_ci(), "{text}");
    say(&format!("NOT RUN: {text}"));
}

/// A program that one of the build scripts has put into the cache folder.
pub(crate) fn built(name: &str) -> Option<PathBuf> {
    let folder = |name: &str| env::var_os(name).filter(|folder| !folder.is_empty());
    let cache = match (folder("XDG_CACHE_HOME"), folder("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => Path::new(&home).join(".cache"),
        (None, None) => return None,
    };
    let program = cache.join("tenure/testbed").join(name);
    program.is_file().then_some(program)
}
