//! The `tenure` command: leases and leader election for any program.

use std::process::ExitCode;

fn main() -> ExitCode {
    tenure_cli::main()
}
