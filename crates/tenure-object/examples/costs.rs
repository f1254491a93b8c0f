//! Prints what leases cost on object storage: `cargo run -p tenure-object --example costs`.

fn main() -> std::io::Result<()> {
    use std::io::Write;
    std::io::stdout().write_all(tenure_object::costs::table().as_bytes())
}
