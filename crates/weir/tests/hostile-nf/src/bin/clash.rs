//! Has a µNF whose name the library has too.

// Its library is linked in.
use weir_runtime::outside::{DescribedNf, Description};
use weir_worker as _;

fn main() {
    let nf = DescribedNf {
        name: "MacSwap".into(),
        summary: String::new(),
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
    let description = Description { nfs: vec![nf], ..Description::own() };
    print!("{}", serde_json::to_string(&description).unwrap());
}
