//! Fails with a complaint that would move a terminal's cursor.

fn main() {
    eprintln!("\x1b[2Jno \x07licence");
    std::process::exit(3);
}
