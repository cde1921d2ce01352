//! Running a corpus of conformance models against a driver.

pub mod compare;
pub mod corpus;
