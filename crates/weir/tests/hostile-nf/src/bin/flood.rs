//! Answers with a gigabyte.

use std::io::Write;

fn main() {
    let piece = [b'x'; 1 << 16];
    let mut out = std::io::stdout();
    for _ in 0..1 << 14 {
        if out.write_all(&piece).is_err() {
            return;
        }
    }
}
