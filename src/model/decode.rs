//! From the interface's model to a checked one.

use super::context::{within, Context};
use super::{control_flow, graph, references, Extension, Model, ModelError};
use crate::aidl;

impl Model {
    /// Checks `model` by every rule of the interface and decodes it. No extension is known.
    pub fn new(model: &aidl::Model) -> Result<Model, ModelError> {
        Model::with_extensions(model, &[])
    }

    /// The same for a backend that knows `extensions`: operations and operand types of these are decoded, not judged.
    pub fn with_extensions(model: &aidl::Model, extensions: &[Extension]) -> Result<Model, ModelError> {
        references::check(model)?;
        let mut context = Context::new(model, extensions)?;
        let main = graph::decode(&model.main, &mut context).map_err(|e| within("main subgraph", e))?;
        let mut referenced = Vec::with_capacity(model.referenced.len());
        for (i, subgraph) in model.referenced.iter().enumerate() {
            referenced.push(
                graph::decode(subgraph, &mut context).map_err(|e| within(&format!("subgraph {i}"), e))?,
            );
        }
        let model = Model { main, referenced, relaxed: model.relaxComputationFloat32toFloat16 };
        control_flow::check(&model)?;
        Ok(model)
    }
}
