//! weir-filter
