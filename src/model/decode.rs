//! From the interface's model to a checked one.

use super::context::{within, Context};
use super::{control_flow, graph, references, Extension, Model, ModelError};
use crate::aidl;
use crate::ops::pace::Pace;
use crate::ops::{Interrupt, NeverInterrupted};

impl Model {
    /// Checks `model` by every rule of the interface and decodes it. No extension is known.
    pub fn new(model: &aidl::Model) -> Result<Model, ModelError> {
        Model::with_extensions(model, &[], &NeverInterrupted)
    }

    /// The same for a backend that knows `extensions`: operations and operand types of these are decoded, not judged. How long
    /// that takes is the client's choice: it comes by the yield points of `interrupt`.
    pub fn with_extensions(
        model: &aidl::Model,
        extensions: &[Extension],
        interrupt: &dyn Interrupt,
    ) -> Result<Model, ModelError> {
        let mut pace = Pace::of(interrupt);
        references::check(model, &mut pace)?;
        let mut context = Context::new(model, extensions, pace)?;
        let main = graph::decode(&model.main, &mut context).map_err(|e| within("main subgraph", e))?;
        let mut referenced = Vec::with_capacity(model.referenced.len());
        for (i, subgraph) in model.referenced.iter().enumerate() {
            referenced.push(
                graph::decode(subgraph, &mut context).map_err(|e| within(&format!("subgraph {i}"), e))?,
            );
        }
        let mut model = Model { main, referenced, relaxed: model.relaxComputationFloat32toFloat16 };
        control_flow::check(&mut model, &mut context.pace)?;
        Ok(model)
    }
}
