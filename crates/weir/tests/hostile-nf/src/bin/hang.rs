//! Never answers.

fn main() {
    loop {
        std::thread::park();
    }
}
