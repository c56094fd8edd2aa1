//! Promises kept or broken.
