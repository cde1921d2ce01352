//! GROUPED_CONV_2D: each group of channels is a convolution of its own.

use super::{Image, Part, Parts, Spread, MOST_PARTS};
use crate::backend::cpu::kernels::conv::product;
use crate::backend::cpu::kernels::isa::Isa;
use crate::backend::cpu::kernels::picked::{Column, Picked};
use crate::backend::cpu::kernels::{Kernel, Source};
use crate::ops::conv::ConvGeometry;
use crate::ops::image::ImageDims;
use crate::ops::Args;

/// A kernel for this call of GROUPED_CONV_2D.
pub fn select(isa: Isa, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let whole = ConvGeometry::from_grouped_args(args).ok().filter(|g| g.groups <= MOST_PARTS)?;
    let size = args.get(0).ok()?.ty().element_size()?;
    let (depth, columns) = (whole.input.channels / whole.groups, whole.out_channels / whole.groups);
    let input = ImageDims { channels: depth, ..whole.input };
    let geometry = ConvGeometry { input, out_channels: columns, groups: 1, ..whole };
    let taps = whole.height.kernel.checked_mul(whole.width.kernel)?;
    let mut parts = Vec::with_capacity(whole.groups);
    for group in 0..whole.groups {
        // Each looks at all the channels there are.
        args.interrupt.yield_point().ok()?;
        let channels = group * columns..(group + 1) * columns;
        let mut picked = Picked::with_room(columns, taps, depth)?;
        picked.columns.extend(channels.map(|channel| Column { channel, start: channel * taps * depth }));
        picked.taps.extend((0..taps).map(|tap| tap * depth));
        parts.push(Part {
            product: product(isa, args, geometry, whole.is_fully_connected(), Some(&picked), source)?,
            reads: (group * depth * size, depth * size),
            height: whole.height.output,
            width: whole.width.output,
            rows: Spread { first: 0, step: 1, count: 1 },
            columns: Spread {
                first: (group * columns * size) as i64,
                step: whole.out_channels * size,
                count: columns * size,
            },
        });
    }
    let ImageDims { batches, height, width, channels } = whole.input;
    let input = Image { batches, height, width, pixel: channels * size };
    let (height, width) = (whole.height.output, whole.width.output);
    let output = Image { batches, height, width, pixel: whole.out_channels * size };
    Some(Box::new(Parts::new(parts, input, output)?))
}
