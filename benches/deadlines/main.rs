//! Deadlines: how late work ends that cannot meet its deadline, because that passes amid the work, or whose client cancels it
//! or dies, and how long others wait for its turn.
//!
//!     cargo bench --bench deadlines [-- operations|ends|models [OPERATION...]]

#[path = "../common/mod.rs"]
mod common;
mod ends;
mod large;
mod models;
mod operations;

use nnhal::ops::OperationType;

fn main() {
    // Cargo adds a flag of its own.
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let what = arguments.next();
    let named: Vec<OperationType> = arguments
        .map(|name| OperationType::from_name(&name).unwrap_or_else(|| panic!("{name} is not an operation")))
        .collect();
    let operations = if named.is_empty() { OperationType::ALL } else { &named };
    match what.as_deref() {
        None => {
            operations::measure(operations);
            ends::measure(operations);
            models::measure();
        }
        Some("operations") => operations::measure(operations),
        Some("ends") => ends::measure(operations),
        Some("models") => models::measure(),
        Some(other) => panic!("{other:?}: expected operations, ends or models"),
    }
}
