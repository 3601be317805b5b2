//! weir-capture
