//! What to call the parts of an imported model.

use crate::ops::OperationType;
use crate::tflite::Imported;

/// The type of the model's operation `index`, by its name in the interface.
pub fn operation_type(imported: &Imported, index: usize) -> String {
    match imported.model.main.operations.get(index).map(|operation| operation.r#type.0) {
        Some(code) => {
            OperationType::from_code(code).map_or(format!("operation {code}"), |ty| ty.name().into())
        }
        None => format!("operation {index}"),
    }
}

/// The file's operator that the model's operation `index` comes from.
pub fn operator(imported: &Imported, index: usize) -> usize {
    imported.operations.iter().position(|range| range.contains(&index)).unwrap_or(0)
}
