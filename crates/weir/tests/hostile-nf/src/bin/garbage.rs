//! Answers what is no description.

fn main() {
    println!("\x1b[31mhello\x07");
}
