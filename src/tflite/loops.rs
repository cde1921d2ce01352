//! Replaces loops that run a known number of times by as many copies of their bodies, and branches whose side is known by
//! that side: LiteRT makes such of recurrent layers, and NNAPI has no lists that grow in a loop.
//!
//! What a copy computes of constants alone is a constant in the result; `rows` sees to the lists.

use super::error::ImportError;
use super::folding;
use super::graph::{Graph, Operator, Tensor};
use super::rows::Flat;
use super::schema::Options;
use std::collections::HashMap;

/// Operators that may become of a file's, those among them whose results are known.
const MOST: usize = 200_000;
/// Tensors that the graphs of all rounds may have together: a file may list one very often.
const MOST_TENSORS: usize = 100 * MOST;
/// Loops and branches that may lie in each other.
const DEEPEST: usize = 8;

/// The main graph, the first of a file's, with all that it runs of the others in it. One that runs no others stays as it is.
pub fn unrolled<'a>(mut graphs: Vec<Graph<'a>>) -> Result<Graph<'a>, ImportError> {
    if graphs.len() == 1 {
        return Ok(graphs.remove(0));
    }
    let main = &graphs[0];
    let mut walk =
        Walk { graphs: &graphs, flat: Flat::new(main), shared: HashMap::new(), count: 0, places: 0 };
    let tensors = (0..main.tensors.len()).map(Some).collect();
    let outputs = walk.run(0, tensors, 0)?;
    let mut graph = walk.flat.finish(&outputs)?;
    for (&i, &own) in outputs.iter().zip(&main.outputs) {
        graph.tensors[i].name = main.tensors[own].name;
    }
    graph.inputs = main.inputs.clone();
    graph.outputs = outputs;
    Ok(graph)
}

struct Walk<'g, 'a> {
    graphs: &'g [Graph<'a>],
    flat: Flat<'a>,
    /// Tensors of graphs which all runs of these have in common, by graph and index: constants, and state that nobody keeps.
    shared: HashMap<(usize, usize), usize>,
    /// Operators so far.
    count: usize,
    /// Tensors of the graphs that were run so far.
    places: usize,
}

impl<'a> Walk<'_, 'a> {
    /// Runs graph `number`, some of whose tensors are tensors of the result already. Gives its outputs there.
    fn run(
        &mut self,
        number: usize,
        mut tensors: Vec<Option<usize>>,
        depth: usize,
    ) -> Result<Vec<usize>, ImportError> {
        let graphs = self.graphs;
        let graph = &graphs[number];
        for (index, operator) in graph.operators.iter().enumerate() {
            let refused = |why: String| ImportError::Operator {
                index,
                name: operator.name.clone(),
                tensor: operator.outputs.first().map(|&i| graph.tensors[i].name.into()).unwrap_or_default(),
                why,
            };
            self.count += 1;
            if self.count > MOST {
                return Err(refused(format!("with all its loops run the model has over {MOST} operators")));
            }
            let inputs = (operator.inputs.iter())
                .map(|i| i.map(|i| self.place(number, i, &tensors).map_err(refused)).transpose())
                .collect::<Result<Vec<_>, _>>()?;
            let results = match operator.runs_graphs() {
                true if depth == DEEPEST => Err(refused(format!("{DEEPEST} loops lie in each other"))),
                true => self.control(operator, &inputs, depth).map_err(|why| match why {
                    Control::Refused(why) => refused(why),
                    Control::Within(why) => why,
                }),
                false => {
                    // Those of the main graph have their places.
                    let places = operator.outputs.iter().map(|&i| match number {
                        0 => i,
                        _ => self.flat.add(graph.tensors[i].clone()),
                    });
                    let outputs = places.collect();
                    let operator = Operator { inputs, outputs, ..operator.clone() };
                    self.step(operator).map_err(refused)
                }
            }?;
            for (&own, result) in operator.outputs.iter().zip(results) {
                tensors[own] = Some(result);
            }
        }
        let place = |&i: &usize| self.place(number, i, &tensors).map_err(ImportError::Graph);
        graph.outputs.iter().map(place).collect()
    }

    /// The tensor of the result that a tensor of graph `number` is.
    fn place(&mut self, number: usize, i: usize, tensors: &[Option<usize>]) -> Result<usize, String> {
        if let Some(place) = tensors[i] {
            return Ok(place);
        }
        let tensor = &self.graphs[number].tensors[i];
        if tensor.data.is_none() && !tensor.variable {
            return Err(format!("tensor \"{}\" is read before any operator writes it", tensor.shown()));
        }
        let flat = &mut self.flat;
        Ok(*self.shared.entry((number, i)).or_insert_with(|| flat.add(tensor.clone())))
    }

    /// An operator of the result: a constant, rows of lists, or itself. Gives its outputs.
    fn step(&mut self, operator: Operator) -> Result<Vec<usize>, String> {
        if let Some(values) = folding::results(self.flat.graph(), &operator) {
            for (&i, value) in operator.outputs.iter().zip(values) {
                self.flat.make_constant(i, value);
            }
            return Ok(operator.outputs);
        }
        self.flat.push(operator)
    }

    fn control(
        &mut self,
        operator: &Operator,
        inputs: &[Option<usize>],
        depth: usize,
    ) -> Result<Vec<usize>, Control> {
        let inputs = inputs.iter().copied().collect::<Option<Vec<_>>>().ok_or("an input is missing")?;
        let results = match &operator.options {
            Some(Options::While(o)) => {
                let mut values = inputs;
                let mut first = self.flat.count();
                loop {
                    let condition = self.subgraph(o.condition_graph, &values, depth)?;
                    if !self.truth(&condition)? {
                        break values;
                    }
                    let next = self.flat.count();
                    values = self.subgraph(o.body_graph, &values, depth)?;
                    // What the round before gave, and what this one had on the way.
                    self.flat.forget(first..self.flat.count(), &values);
                    first = next;
                    // A round may have no operators.
                    self.count += 1;
                    if self.count > MOST {
                        return Err("it does not end soon".into());
                    }
                }
            }
            Some(Options::If(o)) => {
                let (condition, arguments) = inputs.split_at(inputs.len().min(1));
                let side = if self.truth(condition)? { o.then_graph } else { o.else_graph };
                self.subgraph(side, arguments, depth)?
            }
            _ => return Err("its options are missing, or another operator's".into()),
        };
        match results.len() == operator.outputs.len() {
            true => Ok(results),
            false => Err("its graph gives another number of outputs".into()),
        }
    }

    /// Runs one of the file's other graphs on `arguments`.
    fn subgraph(&mut self, number: i32, arguments: &[usize], depth: usize) -> Result<Vec<usize>, Control> {
        let number = usize::try_from(number).ok().filter(|&number| number > 0);
        let (number, graph) = number
            .and_then(|number| Some((number, self.graphs.get(number)?)))
            .ok_or("one of its graphs does not exist")?;
        if graph.inputs.len() != arguments.len() {
            return Err("its graph takes another number of inputs".into());
        }
        self.places = self.places.saturating_add(graph.tensors.len());
        if self.places > MOST_TENSORS {
            return Err("with all its loops run the model has too many tensors".into());
        }
        let mut tensors = vec![None; graph.tensors.len()];
        for (&i, &argument) in graph.inputs.iter().zip(arguments) {
            tensors[i] = Some(argument);
        }
        self.run(number, tensors, depth + 1).map_err(Control::Within)
    }

    /// The truth value that the one tensor of `condition` is known to have.
    fn truth(&self, condition: &[usize]) -> Result<bool, Control> {
        let [condition] = condition else { return Err("it has no condition".into()) };
        let Tensor { data, .. } = &self.flat.graph().tensors[*condition];
        match data.as_deref() {
            Some(&[value]) => Ok(value != 0),
            _ => Err("which way it goes is only known when it runs".into()),
        }
    }
}

/// Why an operator that runs graphs cannot be replaced.
enum Control {
    Refused(String),
    /// For what an operator of those graphs is.
    Within(ImportError),
}

impl From<&str> for Control {
    fn from(why: &str) -> Self {
        Control::Refused(why.into())
    }
}
