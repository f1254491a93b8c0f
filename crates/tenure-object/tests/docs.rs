//! The docs page shows what the command prints.

#[test]
fn the_page_has_the_table_of_the_command() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores/object.md");
    let page = std::fs::read_to_string(path).expect("the docs page");
    let table = tenure_object::costs::table();
    assert!(
        page.contains(&table),
        "docs/stores/object.md lacks this table of `cargo run -p tenure-object --example costs`:\n{table}"
    );
}

#[test]
fn the_page_has_the_margin() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores/object.md");
    let page = std::fs::read_to_string(path).expect("the docs page");
    let margin = tenure_object::MARGIN.as_secs();
    assert!(page.contains(&format!("margin of {margin} s")));
}
