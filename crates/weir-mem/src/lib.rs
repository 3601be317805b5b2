//! weir-mem
