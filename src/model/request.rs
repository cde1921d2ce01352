//! A request, checked against the inputs and outputs of the model it is for.

use crate::aidl;
use crate::memory::{MemoryError, Pool};
use crate::ops::evaluate::check_rank;
use crate::ops::pace::Pace;
use crate::ops::sort::sort;
use crate::ops::{Interrupt, OpError};
use crate::tensor::{byte_size, combine_dims, Dims, TensorInfo, ALLOCATION};

/// A valid request: every argument lies inside its pool and fits its operand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// One per model input; `None` for an optional input that was left out.
    pub inputs: Vec<Option<Argument>>,
    /// One per model output; `None` where the client does not want it.
    pub outputs: Vec<Option<Argument>>,
}

/// Where an argument's bytes lie and what it looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Index into the request's pools.
    pub pool: usize,
    pub offset: usize,
    /// Bytes that belong to the argument; 0 for a device buffer, whose size is not the request's matter.
    pub length: usize,
    /// Dimensions known so far: the request's, completed by the model's. Unknown ones, allowed on outputs, are 0.
    pub dims: Dims,
}

/// A pool of a request.
pub enum RequestPool<'a> {
    /// Shared memory, described by its client.
    Memory(Pool<'a>),
    /// Shared memory of so many bytes that was found already; whether it is a hardware buffer that is no BLOB.
    Known { size: usize, is_image: bool },
    /// A device buffer: its operand is known to the buffer, its size is not the request's matter.
    Buffer { token: i32 },
}

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The request breaks a rule of the interface.
    #[error("{0}")]
    Invalid(String),
    #[error("pool {pool}: {source}")]
    Memory { pool: usize, source: MemoryError },
    /// There is no memory for what describes them.
    #[error("its pools: {0}")]
    Pools(MemoryError),
    /// Nobody waits for it any more.
    #[error(transparent)]
    Interrupted(#[from] OpError),
}

/// Elementary steps that it takes to check an argument, or a pool, about.
const ARGUMENT: usize = 256;
const POOL: usize = 32;

fn invalid<T>(why: impl Into<String>) -> Result<T, RequestError> {
    Err(RequestError::Invalid(why.into()))
}

impl<'a> RequestPool<'a> {
    /// Bytes of shared memory; none for a device buffer.
    fn size(&self) -> usize {
        match self {
            RequestPool::Memory(pool) => pool.size(),
            RequestPool::Known { size, .. } => *size,
            RequestPool::Buffer { .. } => 0,
        }
    }

    /// Whether it is a hardware buffer that is no BLOB: an argument is all of its pixels.
    fn is_image(&self) -> bool {
        match self {
            RequestPool::Memory(pool) => pool.is_image(),
            RequestPool::Known { is_image, .. } => *is_image,
            RequestPool::Buffer { .. } => false,
        }
    }

    /// Checks what a request says of its pools. How many there are is the client's choice: it comes by the yield points of
    /// `interrupt`.
    pub fn decode(
        pools: &'a [aidl::RequestMemoryPool],
        interrupt: &dyn Interrupt,
    ) -> Result<Vec<RequestPool<'a>>, RequestError> {
        let mut pace = Pace::of(interrupt);
        let mut decoded = Vec::new();
        let bytes = pools.len().saturating_mul(size_of::<RequestPool>());
        let out_of_memory = |_| RequestError::Pools(MemoryError::OutOfMemory(bytes));
        decoded.try_reserve_exact(pools.len()).map_err(out_of_memory)?;
        let decode = |(i, pool): (usize, &'a aidl::RequestMemoryPool)| match pool {
            aidl::RequestMemoryPool::Pool(memory) => match Pool::new(memory) {
                Ok(pool) => Ok(RequestPool::Memory(pool)),
                Err(MemoryError::Invalid(why)) => invalid(format!("pool {i}: {why}")),
                Err(source) => Err(RequestError::Memory { pool: i, source }),
            },
            aidl::RequestMemoryPool::Token(token) if *token <= 0 => {
                invalid(format!("pool {i}: {token} is not a token"))
            }
            aidl::RequestMemoryPool::Token(token) => Ok(RequestPool::Buffer { token: *token }),
        };
        for pool in pools.iter().enumerate() {
            pace.spend(POOL)?;
            decoded.push(decode(pool)?);
        }
        Ok(decoded)
    }
}

impl Request {
    /// Checks arguments in `pools` against the model's `inputs` and `outputs`. A fenced execution needs every output's
    /// dimensions (`fenced`), as nobody could be told that its output was too small. How many arguments there are is the
    /// client's choice: it comes by the yield points of `interrupt`.
    pub fn new(
        given_inputs: &[aidl::RequestArgument],
        given_outputs: &[aidl::RequestArgument],
        pools: &[RequestPool],
        inputs: &[TensorInfo],
        outputs: &[TensorInfo],
        fenced: bool,
        interrupt: &dyn Interrupt,
    ) -> Result<Request, RequestError> {
        let mut pace = Pace::of(interrupt);
        if given_inputs.len() != inputs.len() || given_outputs.len() != outputs.len() {
            return invalid(format!(
                "{} inputs and {} outputs, the model has {} and {}",
                given_inputs.len(),
                given_outputs.len(),
                inputs.len(),
                outputs.len()
            ));
        }
        let mut checked = |side: &'static str,
                           given: &[aidl::RequestArgument],
                           infos: &[TensorInfo],
                           unknown_allowed: &dyn Fn(&RequestPool) -> bool| {
            given
                .iter()
                .zip(infos)
                .enumerate()
                .map(|(i, (argument, info))| {
                    pace.spend(ARGUMENT)?;
                    check(argument, info, pools, unknown_allowed)
                        .map_err(|why| RequestError::Invalid(format!("{side} {i}: {why}")))
                })
                .collect::<Result<Vec<_>, _>>()
        };
        let request = Request {
            // A device buffer knows the dimensions of what it holds.
            inputs: checked("input", given_inputs, inputs, &|pool| {
                matches!(pool, RequestPool::Buffer { .. })
            })?,
            outputs: checked("output", given_outputs, outputs, &|_| !fenced)?,
        };
        request.check_overlap(&mut pace)?;
        Ok(request)
    }

    /// About the memory that it takes: how many arguments there are is the client's choice.
    pub fn footprint(&self) -> usize {
        let argument = |argument: &Option<Argument>| {
            let dims = argument.as_ref().map_or(0, |argument| size_of_val(&argument.dims[..]) + ALLOCATION);
            dims.saturating_add(size_of::<Option<Argument>>())
        };
        self.inputs.iter().chain(&self.outputs).map(argument).fold(0, usize::saturating_add)
    }

    /// Outputs must not overlap each other, nor an input: one would change while the other is used.
    fn check_overlap(&self, pace: &mut Pace) -> Result<(), RequestError> {
        let inputs = self.inputs.iter().enumerate().map(|(i, a)| ("input", i, a));
        let outputs = self.outputs.iter().enumerate().map(|(i, a)| ("output", i, a));
        let mut ranges: Vec<(usize, usize, usize, &str, usize)> = inputs
            .chain(outputs)
            .filter_map(|(side, i, argument)| {
                argument.as_ref().map(|a| (a.pool, a.offset, a.offset + a.length, side, i))
            })
            .filter(|range| range.1 < range.2)
            .collect();
        pace.spend(ranges.len())?;
        let all = ranges.len();
        sort(&mut ranges, all, pace, Ord::cmp)?;
        // Within a pool, by start: whatever overlaps an output overlaps the furthest-reaching range seen before it.
        let (mut furthest, mut furthest_output): (Option<_>, Option<_>) = (None, None);
        for range @ (pool, start, end, side, i) in ranges {
            let reaches = |other: &(usize, usize, usize, &str, usize)| other.0 == pool && other.2 > start;
            let clash =
                if side == "output" { furthest.filter(reaches) } else { furthest_output.filter(reaches) };
            if let Some((_, _, _, other_side, other)) = clash {
                return invalid(format!("{side} {i} overlaps {other_side} {other}"));
            }
            let further = |other: Option<(usize, usize, usize, &'static str, usize)>| {
                other.is_none_or(|o| o.0 != pool || o.2 < end)
            };
            if further(furthest) {
                furthest = Some(range);
            }
            if side == "output" && further(furthest_output) {
                furthest_output = Some(range);
            }
        }
        Ok(())
    }
}

/// Checks one argument; `None` for one without value.
fn check(
    argument: &aidl::RequestArgument,
    info: &TensorInfo,
    pools: &[RequestPool],
    unknown_allowed: &dyn Fn(&RequestPool) -> bool,
) -> Result<Option<Argument>, String> {
    let location = &argument.location;
    if argument.hasNoValue {
        let empty = (location.poolIndex, location.offset, location.length, location.padding) == (0, 0, 0, 0);
        return match empty && argument.dimensions.is_empty() {
            true => Ok(None),
            false => Err("an argument without value must have no location and no dimensions".into()),
        };
    }
    let number =
        |value: i64, what: &str| usize::try_from(value).map_err(|_| format!("{what} {value} is negative"));
    let (offset, length) = (number(location.offset, "offset")?, number(location.length, "length")?);
    let padding = number(location.padding, "padding")?;
    let dims = combined_dims(&argument.dimensions, info)?;
    let complete = info.ty.is_scalar() || (!dims.is_empty() && !dims.contains(&0));
    let pool = usize::try_from(location.poolIndex).ok().filter(|&i| i < pools.len());
    let pool = pool.ok_or_else(|| {
        format!("pool {} does not exist; the request has {}", location.poolIndex, pools.len())
    })?;
    let (given, is_image) = (&pools[pool], pools[pool].is_image());
    if !complete && (is_image || !unknown_allowed(given)) {
        return Err(format!("dimensions {dims:?} must be known here"));
    }
    let is_device_buffer = matches!(given, RequestPool::Buffer { .. });
    if (is_image || is_device_buffer) && (offset, length, padding) != (0, 0, 0) {
        let what = if is_image { "hardware buffer that is no BLOB" } else { "device buffer" };
        return Err(format!("a {what} is used whole: offset, length and padding must be 0"));
    }
    let size = given.size();
    let length = if is_image { size } else { length };
    if !is_device_buffer {
        let end = offset.checked_add(length).and_then(|end| end.checked_add(padding));
        if length == 0 || end.is_none_or(|end| end > size) {
            return Err(format!(
                "bytes {offset}+{length}, padding {padding}: not inside of the pool's {size}"
            ));
        }
        let needed = byte_size(info.ty, &dims);
        if complete && needed != Some(length) {
            let needed = needed.map_or("too many".into(), |needed| needed.to_string());
            return Err(format!("{length} bytes for a {} of {dims:?}, which has {needed}", info.ty));
        }
    }
    Ok(Some(Argument { pool, offset, length, dims }))
}

/// The argument's dimensions, completed by those that the model knows.
fn combined_dims(given: &[i32], info: &TensorInfo) -> Result<Dims, String> {
    // Before anything copies or prints them.
    check_rank(given.len()).map_err(|why| why.to_string())?;
    let given = given
        .iter()
        .map(|&d| u32::try_from(d).map_err(|_| format!("dimension {d} is negative")))
        .collect::<Result<Dims, _>>()?;
    if given.is_empty() {
        return Ok(info.dims.clone());
    }
    if info.ty.is_scalar() {
        return Err("a scalar has no dimensions".into());
    }
    combine_dims(&given, &info.dims)
        .ok_or_else(|| format!("dimensions {given:?} for an operand of {:?}", info.dims))
}
