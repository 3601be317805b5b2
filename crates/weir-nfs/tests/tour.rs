//! The tour in `docs/writing-a-nf.md` shows the code of the example, which is tested.
#![allow(clippy::unwrap_used)] // A test.

/// Code without comments and layout.
fn essence(code: &str) -> String {
    let code = code.lines().map(|line| line.split("//").next().unwrap());
    let dense: String = code.flat_map(|line| line.chars().filter(|c| !c.is_whitespace())).collect();
    dense.replace(",}", "}").replace(",)", ")").replace(",]", "]")
}

#[test]
fn every_piece_of_code_in_the_tour_stands_in_the_example() {
    let example = essence(include_str!("../examples/hop_limit.rs"));
    let tour = include_str!("../../../docs/writing-a-nf.md");
    let blocks = tour.split("```rust\n").skip(1).map(|after| after.split("```").next().unwrap());
    let pieces: Vec<_> = blocks.flat_map(|block| block.split("\n\n")).collect();
    assert!(pieces.len() >= 8);
    for piece in pieces {
        assert!(example.contains(&essence(piece)), "not in the example:\n{piece}");
    }
}
