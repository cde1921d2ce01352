//! Matrix products.
//!
//! A backend with fast kernels reads a call through the same geometry structs; only the loops are its own.

mod batch_matmul;
mod fully_connected;

pub use batch_matmul::{BatchMatmulGeometry, BATCH_MATMUL};
pub use fully_connected::{FullyConnectedGeometry, FULLY_CONNECTED};
