//! ALFWorld, native.
