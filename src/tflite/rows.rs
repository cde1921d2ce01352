//! A graph that is being written, in which a list of rows may be told by where the rows are.
//!
//! A loop reads a row of one list in each round, and writes a row of another: as operators these would copy whole lists
//! each time. So what takes rows, or puts them together, only notes them, until something else wants the list. A product
//! of a row and constant weights is made for all rows of its tensor at once.

use super::error::ImportError;
use super::graph::{Graph, Operator, Tensor, TensorType};
use super::registry::MANY;
use super::schema::Options;
use crate::tensor::element_count;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The graph, and what is noted of it.
pub struct Flat<'a> {
    graph: Graph<'a>,
    /// The rows that a tensor is to have which no operator writes yet. They are of tensors that are written.
    lists: HashMap<usize, Vec<Rows>>,
    /// Products of all rows of a tensor, by that, by weights, bias and options.
    products: HashMap<(usize, Vec<Option<usize>>, String), usize>,
}

/// So many rows of a tensor, which lie along its first dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rows {
    tensor: usize,
    start: u32,
    count: u32,
}

impl<'a> Flat<'a> {
    /// With the tensors of `main`, and no operators.
    pub fn new(main: &Graph<'a>) -> Self {
        let graph = Graph { tensors: main.tensors.clone(), ..Graph::default() };
        Flat { graph, lists: HashMap::new(), products: HashMap::new() }
    }

    pub fn graph(&self) -> &Graph<'a> {
        &self.graph
    }

    pub fn add(&mut self, tensor: Tensor<'a>) -> usize {
        self.graph.tensors.push(tensor);
        self.graph.tensors.len() - 1
    }

    pub fn make_constant(&mut self, i: usize, bytes: Vec<u8>) {
        self.graph.tensors[i].data = Some(Cow::Owned(bytes));
    }

    /// The graph, in which `outputs` are written.
    pub fn finish(mut self, outputs: &[usize]) -> Result<Graph<'a>, ImportError> {
        for &i in outputs {
            self.write(i).map_err(ImportError::Graph)?;
        }
        Ok(self.graph)
    }

    /// Adds an operator, or notes what it does to rows. Gives its outputs.
    pub fn push(&mut self, operator: Operator) -> Result<Vec<usize>, String> {
        if let [output] = operator.outputs[..] {
            let noted = match operator.name.as_str() {
                "SLICE" => self.slice(&operator, output)?,
                "CONCATENATION" => self.concatenation(&operator, output)?,
                "GATHER" => self.gather(&operator, output)?,
                "FULLY_CONNECTED" => self.product(&operator, output),
                _ => None,
            };
            if let Some(rows) = noted {
                return Ok(vec![self.note(output, rows)]);
            }
        }
        for i in operator.inputs.iter().copied().flatten() {
            self.write(i)?;
        }
        let outputs = operator.outputs.clone();
        self.graph.operators.push(operator);
        Ok(outputs)
    }

    /// Has tensor `i` stand for `rows`; where these are another as it is, that is given.
    fn note(&mut self, i: usize, rows: Vec<Rows>) -> usize {
        match rows[..] {
            [Rows { tensor, start: 0, .. }] if self.dims(tensor) == self.dims(i) => tensor,
            _ => {
                self.lists.insert(i, rows);
                i
            }
        }
    }

    fn dims(&self, i: usize) -> &[u32] {
        &self.graph.tensors[i].dims
    }

    /// The rows of tensor `i`. Those of another tensor serve only if they are as long: what was gathered has lost the
    /// dimension that they lie along.
    fn rows(&mut self, i: usize) -> Result<Vec<Rows>, String> {
        let has_row_of = |rows: &Rows| self.dims(rows.tensor).get(1..) == self.dims(i).get(1..);
        if self.lists.get(&i).is_some_and(|list| !list.iter().all(has_row_of)) {
            self.write(i)?;
        }
        let whole = || vec![Rows { tensor: i, start: 0, count: self.dims(i).first().copied().unwrap_or(1) }];
        Ok(self.lists.get(&i).cloned().unwrap_or_else(whole))
    }

    /// The constant integers of input `i`.
    fn ints(&self, operator: &Operator, i: usize) -> Option<Vec<i32>> {
        let tensor = &self.graph.tensors[(*operator.inputs.get(i)?)?];
        let data = tensor.data.as_deref().filter(|_| tensor.ty == TensorType::Int32)?;
        Some(data.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// Whole rows.
    fn slice(&mut self, operator: &Operator, output: usize) -> Result<Option<Vec<Rows>>, String> {
        let Some((from, start, count)) = self.whole_rows(operator) else { return Ok(None) };
        let rows = part(&self.rows(from)?, start, count);
        // The file may leave this open.
        let row = self.dims(from).get(1..).unwrap_or_default();
        self.graph.tensors[output].dims = [&[count], row].concat();
        Ok(Some(rows))
    }

    /// The tensor that a SLICE takes whole rows of, the first of them and how many.
    fn whole_rows(&self, operator: &Operator) -> Option<(usize, u32, u32)> {
        let from = (*operator.inputs.first()?)?;
        let (starts, counts) = (self.ints(operator, 1)?, self.ints(operator, 2)?);
        let (&all, row) = self.dims(from).split_first()?;
        let is_whole = |((&start, &count), &dim): ((&i32, &i32), &u32)| {
            start == 0 && (count == -1 || u32::try_from(count) == Ok(dim))
        };
        let (&start, starts) = starts.split_first()?;
        let (&count, counts) = counts.split_first()?;
        let are_whole = starts.len() == row.len() && counts.len() == row.len();
        if !are_whole || !starts.iter().zip(counts).zip(row).all(is_whole) {
            return None;
        }
        let start = u32::try_from(start).ok().filter(|&start| start <= all)?;
        let count = if count == -1 { all - start } else { u32::try_from(count).ok()? };
        (count <= all - start).then_some((from, start, count))
    }

    /// Lists one after the other.
    fn concatenation(&mut self, operator: &Operator, output: usize) -> Result<Option<Vec<Rows>>, String> {
        let Some(Options::Concatenation(o)) = &operator.options else { return Ok(None) };
        let inputs = operator.inputs.iter().copied().collect::<Option<Vec<_>>>().unwrap_or_default();
        let row = inputs.first().and_then(|&first| self.dims(first).get(1..)).map(<[u32]>::to_vec);
        let Some(row) = row else { return Ok(None) };
        let quantisation = &self.graph.tensors[output].quantisation;
        let is_alike = |&i: &usize| {
            self.dims(i).get(1..) == Some(&row) && self.graph.tensors[i].quantisation == *quantisation
        };
        if o.axis != 0 || o.activation != 0 || !inputs.iter().all(is_alike) {
            return Ok(None);
        }
        let (mut all, mut rows) = (Vec::new(), Vec::<Rows>::new());
        for &i in &inputs {
            all.extend(self.rows(i)?);
        }
        for next in all.into_iter().filter(|next| next.count > 0) {
            match rows.last_mut() {
                Some(last) if last.tensor == next.tensor && last.start + last.count == next.start => {
                    last.count += next.count;
                }
                _ => rows.push(next),
            }
        }
        let count = rows.iter().try_fold(0u32, |sum, rows| sum.checked_add(rows.count));
        let count = count.ok_or("a list has too many rows")?;
        self.graph.tensors[output].dims = [&[count], &row[..]].concat();
        Ok(Some(rows))
    }

    /// One row, without the dimension of rows.
    fn gather(&mut self, operator: &Operator, output: usize) -> Result<Option<Vec<Rows>>, String> {
        let (Some(Options::Gather(o)), &[Some(from), Some(index)]) =
            (&operator.options, &operator.inputs[..])
        else {
            return Ok(None);
        };
        let place = match self.ints(operator, 1).as_deref() {
            Some(&[place]) if self.dims(index).is_empty() => u32::try_from(place).ok(),
            _ => None,
        };
        let Some((&all, row)) = self.dims(from).split_first() else { return Ok(None) };
        let is_row = o.axis == 0 && o.batch_dims == 0 && self.dims(output) == row && !row.is_empty();
        let Some(start) = place.filter(|&place| place < all && is_row) else { return Ok(None) };
        // The others are likely to be wanted, too.
        self.write(from)?;
        Ok(Some(vec![Rows { tensor: from, start, count: 1 }]))
    }

    /// A row by constant weights: the row of the product of all rows.
    fn product(&mut self, operator: &Operator, output: usize) -> Option<Vec<Rows>> {
        let (&input, steering) = operator.inputs.split_first()?;
        let [Rows { tensor, start, count: 1 }] = self.lists.get(&input?)?[..] else { return None };
        let (&all, row) = self.dims(tensor).split_first()?;
        let &[1, units] = self.dims(output) else { return None };
        let depth = u32::try_from(element_count(row)?).ok()?;
        let is_constant = |i: &usize| self.graph.tensors[*i].data.is_some();
        if element_count(self.dims(input?))? != depth as usize || !steering.iter().flatten().all(is_constant)
        {
            return None;
        }
        let key = (tensor, steering.to_vec(), format!("{:?}", operator.options));
        let product = match self.products.get(&key) {
            Some(&product) => product,
            None => {
                let rows =
                    Tensor { dims: vec![all, depth], data: None, ..self.graph.tensors[tensor].clone() };
                let sums = Tensor { dims: vec![all, units], ..self.graph.tensors[output].clone() };
                let (rows, product) = (self.add(rows), self.add(sums));
                let inputs = [&[Some(rows)], steering].concat();
                let made = Operator { inputs, outputs: vec![product], ..operator.clone() };
                self.graph.operators.extend([plain("RESHAPE", vec![Some(tensor)], rows, None), made]);
                self.products.insert(key, product);
                product
            }
        };
        Some(vec![Rows { tensor: product, start, count: 1 }])
    }

    /// How many tensors there are so far.
    pub fn count(&self) -> usize {
        self.graph.tensors.len()
    }

    /// Forgets the lists of all of these tensors but `kept`: nobody will ask for them any more.
    pub fn forget(&mut self, tensors: Range<usize>, kept: &[usize]) {
        let kept: HashSet<&usize> = kept.iter().collect();
        tensors.filter(|i| !kept.contains(i)).for_each(|i| drop(self.lists.remove(&i)));
    }

    /// Has operators write tensor `i`, if none does yet.
    fn write(&mut self, i: usize) -> Result<(), String> {
        let Some(rows) = self.lists.remove(&i) else { return Ok(()) };
        let mut parts: Vec<usize> = rows.iter().map(|&rows| self.taken(rows)).collect();
        let Some(&first) = parts.first() else {
            return Err(format!("tensor \"{}\" has no elements", self.graph.tensors[i].shown()));
        };
        // Several are of rows that are the tensor's own; one may have been gathered.
        if parts.len() == 1 {
            self.graph.operators.push(plain("RESHAPE", vec![Some(first)], i, None));
            return Ok(());
        }
        while parts.len() > MANY {
            let groups: Vec<Vec<usize>> = parts.chunks(MANY).map(<[usize]>::to_vec).collect();
            parts = groups.into_iter().map(|group| self.joined(group)).collect();
        }
        self.join(parts, i);
        Ok(())
    }

    /// A tensor of the rows of all of `parts`.
    fn joined(&mut self, parts: Vec<usize>) -> usize {
        if let [part] = parts[..] {
            return part;
        }
        let count = parts.iter().filter_map(|&part| self.dims(part).first()).sum();
        let mut whole = Tensor { data: None, ..self.graph.tensors[parts[0]].clone() };
        if let Some(rows) = whole.dims.first_mut() {
            *rows = count;
        }
        let whole = self.add(whole);
        self.join(parts, whole);
        whole
    }

    fn join(&mut self, parts: Vec<usize>, whole: usize) {
        let options = Some(Options::Concatenation(Box::default()));
        let parts = parts.into_iter().map(Some).collect();
        self.graph.operators.push(plain("CONCATENATION", parts, whole, options));
    }

    /// A tensor of just these rows.
    fn taken(&mut self, Rows { tensor, start, count }: Rows) -> usize {
        let all = self.graph.tensors[tensor].clone();
        let (Some(&whole), row) = (all.dims.first(), all.dims.get(1..).unwrap_or_default()) else {
            return tensor;
        };
        if whole == count {
            return tensor;
        }
        let others = row.len();
        let begins = self.int_list([start as i32].into_iter().chain(vec![0; others]).collect());
        let sizes = self.int_list([count as i32].into_iter().chain(vec![-1; others]).collect());
        let rows = self.add(Tensor { dims: [&[count], row].concat(), data: None, ..all });
        self.graph.operators.push(plain("SLICE", vec![Some(tensor), Some(begins), Some(sizes)], rows, None));
        rows
    }

    fn int_list(&mut self, values: Vec<i32>) -> usize {
        let dims = vec![values.len() as u32];
        let data: Vec<u8> = values.into_iter().flat_map(i32::to_le_bytes).collect();
        self.add(Tensor { dims, data: Some(data.into()), ..Tensor::of(TensorType::Int32) })
    }
}

/// So many rows of `list`, from row `start` on.
fn part(list: &[Rows], start: u32, count: u32) -> Vec<Rows> {
    let (mut before, mut left, mut taken) = (start, count, Vec::new());
    for rows in list {
        let skipped = before.min(rows.count);
        before -= skipped;
        let count = (rows.count - skipped).min(left);
        left -= count;
        if count > 0 {
            taken.push(Rows { start: rows.start + skipped, count, ..*rows });
        }
    }
    taken
}

fn plain(name: &str, inputs: Vec<Option<usize>>, output: usize, options: Option<Options>) -> Operator {
    Operator { name: name.into(), inputs, outputs: vec![output], options, custom: Vec::new() }
}
