//! As if built with another version: another catalogue.

// Its library is linked in.
use weir_worker as _;

fn main() {
    let mut description = weir_runtime::outside::Description::own();
    description.catalogue += 1;
    print!("{}", serde_json::to_string(&description).unwrap());
}
