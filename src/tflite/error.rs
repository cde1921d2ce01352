//! Why a file could not be imported.

/// An error of the importer.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("this is not a TensorFlow Lite model, or it is damaged: {0}; get the file again")]
    Damaged(String),
    #[error("operator {index} ({}) cannot be mapped to NNAPI: {why}; it makes the tensor {:?}", beginning(.name), beginning(.tensor))]
    Operator { index: usize, name: String, why: String, tensor: String },
    #[error("the model cannot be mapped to NNAPI: {0}")]
    Graph(String),
    #[error("no shared memory for the model's constants: {0}")]
    Memory(#[from] std::io::Error),
}

impl From<planus::Error> for ImportError {
    fn from(error: planus::Error) -> Self {
        ImportError::Damaged(error.to_string())
    }
}

/// Characters that messages give of a name.
const SHOWN: usize = 200;

/// A name as messages give it.
pub fn beginning(name: &str) -> &str {
    name.char_indices().nth(SHOWN).map_or(name, |(end, _)| &name[..end])
}

/// Why one operator or tensor cannot be mapped; code that knows where it stands makes an [`ImportError`] of it.
#[derive(Debug)]
pub struct Refusal(pub String);

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Refusal(why)
    }
}

impl From<&str> for Refusal {
    fn from(why: &str) -> Self {
        Refusal(why.into())
    }
}

impl From<planus::Error> for Refusal {
    fn from(error: planus::Error) -> Self {
        Refusal(format!("the file is damaged: {error}"))
    }
}
