//! A program with a µNF of its own: `weir run POLICY --with PATH/TO/outside-nf`.

mod mark_dscp;

fn main() -> std::process::ExitCode {
    weir_worker::main()
}
