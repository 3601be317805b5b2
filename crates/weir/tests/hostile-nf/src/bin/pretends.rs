//! Says that it has `MarkDscp`, and has not.

use weir_runtime::outside::{DescribedNf, Description};

fn main() -> std::process::ExitCode {
    let nf = DescribedNf {
        name: "MarkDscp".into(),
        summary: "Pretends".into(),
        inputs: vec!["in".into()],
        outputs: vec!["out".into()],
        writes: true,
        may_drop: false,
        domain: String::new(),
        resizes: false,
        creates: 0,
        holds: 0,
        follows: false,
        tags: Vec::new(),
        descriptor: serde_json::Value::Null,
        schema: serde_json::Value::Null,
    };
    match std::env::args().nth(1).as_deref() {
        Some("worker") => weir_worker::main(),
        Some("check") => {
            print!("{{\"problem\":null}}");
            std::process::ExitCode::SUCCESS
        }
        _ => {
            let description = Description { nfs: vec![nf], ..Description::own() };
            print!("{}", serde_json::to_string(&description).unwrap());
            std::process::ExitCode::SUCCESS
        }
    }
}
