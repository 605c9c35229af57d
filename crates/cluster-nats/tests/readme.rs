//! What the front page of the library shows is what its example is.

#[test]
fn the_program_on_the_front_page_is_the_example() {
    let page = include_str!("../../cluster/README.md");
    let example = include_str!("../examples/hello.rs");
    let (_, rest) = page.split_once("```rust,ignore\n").expect("the page shows a program");
    let (shown, _) = rest.split_once("```\n").expect("it ends");
    let (_, program) = example.split_once("\n\n").expect("a description, then the program");
    assert_eq!(shown, program);
}
