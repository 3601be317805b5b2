//! A build that is slower on purpose (feature `slowed`): whether a comparison of measurements shows it can be seen by such a one.

use std::hint::black_box;

/// Cycles, about, that each µNF takes more for each packet: several times what the cheapest takes, or as many as `WEIR_SLOWED_CYCLES` says
/// while it is built.
const CYCLES: usize = match option_env!("WEIR_SLOWED_CYCLES") {
    Some(cycles) => match usize::from_str_radix(cycles, 10) {
        Ok(cycles) => cycles,
        Err(_) => panic!("WEIR_SLOWED_CYCLES is a number"),
    },
    None => 60,
};

/// Takes them. Each step needs the last one's result, so that none overlaps another.
pub(crate) fn burn(packets: usize) {
    let mut chain = black_box(0x9e37_79b9_7f4a_7c15_u64);
    // A rotation and an addition: two cycles.
    for step in 0..packets * CYCLES / 2 {
        chain = chain.rotate_left(7).wrapping_add(step as u64);
    }
    black_box(chain);
}
