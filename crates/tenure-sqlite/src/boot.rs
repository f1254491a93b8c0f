//! Which boot of the machine this is: a lease never outlives one.

use tenure::{Error, Result};

/// The kernel's name for this boot.
#[cfg(target_os = "linux")]
pub(crate) fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::misconfigured(format!(
            "the boot id cannot be read from {path} ({error}): mount /proc, or give one with `boot_id`"
        ))
    })?;
    refuse_moved_clock()?;
    Ok(text.trim().to_owned())
}

/// The kernel's name for this boot.
#[cfg(target_os = "macos")]
pub(crate) fn boot_id() -> Result<String> {
    let asked = std::process::Command::new("/usr/sbin/sysctl")
        .args(["-n", "kern.bootsessionuuid"])
        .output();
    match asked {
        Ok(answer) if answer.status.success() && !answer.stdout.is_empty() => {
            Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
        }
        _ => Err(Error::misconfigured(
            "sysctl kern.bootsessionuuid gives no boot id: give one with `boot_id`",
        )),
    }
}

/// The kernel's name for this boot.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(crate) fn boot_id() -> Result<String> {
    Err(Error::misconfigured(
        "tenure knows no boot id on this system: give one with `boot_id`, new after each start of the machine",
    ))
}

/// A time namespace has the machine's boot id with another boot clock, so the moments
/// in the file would mean different things to its readers.
#[cfg(target_os = "linux")]
fn refuse_moved_clock() -> Result<()> {
    // Not there on a kernel without time namespaces.
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    if moved(&offsets) {
        return Err(Error::misconfigured(
            "this process is in a time namespace whose boot clock is not the machine's: \
             run it outside, or give a `boot_id` of its own and share the file with nobody outside",
        ));
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn moved(offsets: &str) -> bool {
    offsets.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("boottime") && words.any(|word| word != "0")
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_moved_boot_clock_is_noticed() {
        assert!(!moved(""));
        assert!(!moved(
            "monotonic           0         0\nboottime            0         0\n"
        ));
        assert!(!moved(
            "monotonic           5         0\nboottime            0         0\n"
        ));
        assert!(moved(
            "monotonic           0         0\nboottime          604         0\n"
        ));
        assert!(moved("boottime  0  7"));
    }

    #[test]
    fn the_boot_id_is_the_same_twice() {
        let id = boot_id().unwrap();
        assert!(id.len() >= 32);
        assert_eq!(id, boot_id().unwrap());
    }
}
