//! The tour in `docs/writing-a-nf.md` shows the code of the example, which is tested, and all of it.
#![allow(clippy::unwrap_used)] // A test.

const EXAMPLE: &str = include_str!("../examples/hop_limit.rs");
const TOUR: &str = include_str!("../../../docs/writing-a-nf.md");

/// Code without comments and layout.
fn essence(code: &str) -> String {
    let code = code.lines().map(|line| line.split("//").next().unwrap());
    let dense: String = code.flat_map(|line| line.chars().filter(|c| !c.is_whitespace())).collect();
    dense.replace(",}", "}").replace(",)", ")").replace(",]", "]")
}

/// The tour's blocks: those that stand in the impl, and the others.
fn blocks() -> (Vec<&'static str>, Vec<&'static str>) {
    let blocks = TOUR.split("```rust\n").skip(1).map(|after| after.split("```").next().unwrap());
    blocks.partition(|block| block.starts_with("// in the impl\n"))
}

/// What is left of `code` without `pieces`, each of which has to stand there once.
fn without(code: &str, pieces: &[&str]) -> String {
    pieces.iter().flat_map(|block| block.split("\n\n")).fold(essence(code), |code, piece| {
        let dense = essence(piece);
        assert_eq!(code.matches(&dense).count(), 1, "not in the example, or twice:\n{piece}");
        code.replacen(&dense, "", 1)
    })
}

#[test]
fn the_pieces_of_the_tour_put_together_as_it_says_are_the_example() {
    let (inside, beside) = blocks();
    assert!(inside.len() >= 4 && beside.len() >= 4);
    let (head, rest) = EXAMPLE.split_once("impl Nf for HopLimit {\n").unwrap();
    let (body, tail) = rest.split_once("\n}\n").unwrap();
    assert_eq!(without(body, &inside), "");
    // The example's `main` is its own, and it has tests that the tour does not show.
    let (register, after) = tail.split_once("/// A µNF has no `main`").unwrap();
    let (_, tests) = after.split_once("#[cfg(test)]").unwrap();
    let mut more = tests.split("    #[test]\n");
    let (opening, last) = (more.next().unwrap(), more.last().unwrap());
    let shown = format!("{head}{register}#[cfg(test)]{opening}    #[test]\n{last}");
    assert_eq!(without(&shown, &beside), "");
}
