//! How the outputs are shared out among threads: bands of pixels, and strips of the channels of each.
//!
//! Bands come first, as the convolutions before and after have bands too, and a thread then reads what it wrote. Images of a
//! few pixels with many channels go in strips only: there convolutions share out their channels, and a band would read all
//! weights again.

use super::super::gemm::{even_part, Outputs};
use super::super::Work;
use crate::memory::Target;
use crate::ops::conv::DepthwiseGeometry;
use crate::ops::pace::touched;
use crate::ops::OpError;
use bytemuck::AnyBitPattern;
use std::marker::PhantomData;
use std::ops::Range;

/// Channels of a strip, or a multiple of it: a cache line of bytes, so that no two threads write to one.
const CHANNELS: usize = 64;
/// Tasks for each thread where there are fewer bands: threads start one after the other, and not all are as fast.
const EACH: usize = 6;
/// Channels for each pixel from which on convolutions share out channels.
const MANY: usize = 4;
/// How many times the bytes of its outputs a task counts where they are gone on with.
const NEAR: usize = 8;

/// Some channels of some pixels, all counted from the first ones of the output, and where they go.
pub struct Strip<'a, T> {
    pub pixels: Range<usize>,
    pub channels: Range<usize>,
    /// Channels of a pixel.
    all: usize,
    to: *mut T,
    memory: PhantomData<&'a mut T>,
}

impl<'a, T: AnyBitPattern> Strip<'a, T> {
    /// All channels of the pixels of `out`, which are those from `first` on.
    pub fn whole(out: &'a mut Target<T>, first: usize, channels: usize) -> Self {
        let pixels = first..first + out.len() / channels;
        let to = out.pointer(0, out.len());
        Strip { pixels, channels: 0..channels, all: channels, to, memory: PhantomData }
    }

    /// Where channel 0 of `pixel` goes, and the pixels after it, of which there must be `count`.
    pub fn at(&self, pixel: usize, count: usize) -> *mut T {
        assert!(pixel >= self.pixels.start && count <= self.pixels.end - pixel, "pixels beside a strip");
        self.to.wrapping_add((pixel - self.pixels.start) * self.all)
    }
}

/// The strips of an output: bands of pixels that are about as high as each other, and as many for each thread, and strips of
/// channels that are about as wide.
struct Strips {
    pixels: usize,
    /// Pixels that a band has a multiple of.
    unit: usize,
    bands: usize,
    channels: usize,
    /// Strips of a band.
    strips: usize,
}

impl Strips {
    /// For a kernel that spends so many picoseconds on each of the `pixels`, and makes `together` rows at once, of elements of so
    /// many bytes. Bands are whole rows, unless a row takes too long.
    fn new(
        work: Work,
        geometry: &DepthwiseGeometry,
        pixels: usize,
        (picoseconds, together): (usize, usize),
        element: usize,
    ) -> Self {
        let channels = geometry.input.channels * geometry.multiplier;
        // What is gone on with is to be near still.
        let near = if work.then.is_some() { channels.saturating_mul(NEAR * element) } else { 0 };
        let bytes = near.saturating_add(touched(
            geometry.input.elements().saturating_mul(element),
            pixels,
            geometry.height.kernel,
        ));
        let after = work.then.map_or(0, |then| channels.saturating_mul(then.picoseconds));
        let picoseconds = picoseconds.saturating_add(after);
        let (count, width, threads) =
            (work.units_per_task(pixels, picoseconds, bytes), geometry.width.output, work.team.threads());
        let unit = if count < width { count } else { together * width };
        let units = pixels.div_ceil(unit);
        let bands = bands_of(units, count.div_ceil(unit), threads);
        let whole = Strips { pixels, unit, bands, channels, strips: 1 };
        // A task copies its rows whole where channels have several outputs, and whole rows are gone on with at one go.
        let is_whole = geometry.multiplier > 1 || (work.then.is_some() && bands >= 2 * threads);
        if bands <= 1 || is_whole {
            return whole;
        }
        if pixels.saturating_mul(MANY) < channels {
            let each = work.units_per_task(channels, picoseconds.saturating_mul(pixels) / channels, 0);
            return Strips { bands: 1, ..whole }.of_strips(channels.div_ceil(each));
        }
        whole.of_strips((EACH * threads).div_ceil(bands))
    }

    /// So many strips of each band, as far as there are channels for them.
    fn of_strips(self, strips: usize) -> Self {
        Strips { strips: strips.clamp(1, self.channels.div_ceil(CHANNELS).max(1)), ..self }
    }

    fn count(&self) -> usize {
        self.bands * self.strips
    }

    /// Pixels and channels of a strip. Neighbours have the same band.
    fn part(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let (band, strip) = (index / self.strips, index % self.strips);
        let part = |all: usize, unit: usize, index: usize, count: usize| {
            let units = even_part(all.div_ceil(unit), index, count);
            all.min(units.start * unit)..all.min(units.end * unit)
        };
        (part(self.pixels, self.unit, band, self.bands), part(self.channels, CHANNELS, strip, self.strips))
    }
}

/// How many bands there are of so many units, each of at most `most`: as many for each thread, where there is one for each.
fn bands_of(units: usize, most: usize, threads: usize) -> usize {
    match units.div_ceil(most) {
        bands if bands < threads => bands,
        bands => bands.next_multiple_of(threads).min(units),
    }
}

/// Calls `make` for all strips of an output, on all threads, until done or interrupted. For the other arguments see
/// [`Strips::new`].
pub fn for_each_strip<T: AnyBitPattern + Send>(
    work: Work,
    geometry: &DepthwiseGeometry,
    mut out: Target<T>,
    costs: (usize, usize),
    make: impl Fn(Strip<T>) -> Result<(), OpError> + Sync,
) -> Result<(), OpError> {
    let (len, all) = (out.len(), geometry.input.channels * geometry.multiplier);
    let (strips, to) =
        (Strips::new(work, geometry, len / all, costs, size_of::<T>()), Outputs(out.pointer(0, len)));
    work.for_each_task(strips.count(), |index| {
        let (pixels, channels) = strips.part(index);
        // Strips have different pixels or channels, all of them those of the output, and each is handed out once.
        let at = to.at(pixels.start * all);
        make(Strip { pixels: pixels.clone(), channels: channels.clone(), all, to: at, memory: PhantomData })?;
        match work.then {
            // SAFETY: the strip was just written, and is memory of ours as it is gone on with.
            Some(then) => unsafe { then.on(to.0, pixels, channels, all) },
            None => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_as_many_bands_each_where_there_are_enough() {
        for (units, most, threads, bands) in [
            (28, 4, 2, 8),
            (28, 4, 3, 9),
            (28, 4, 1, 7),
            (7, 4, 4, 2),
            (3, 1, 2, 3),
            (1, 1, 2, 1),
            (0, 1, 2, 0),
        ] {
            assert_eq!(bands_of(units, most, threads), bands, "{units} units, {most} at the most, {threads}");
        }
    }

    #[test]
    fn each_channel_of_each_pixel_is_in_one_strip() {
        for (pixels, unit, bands, channels, strips) in
            [(1, 1, 1, 1, 1), (49, 49, 1, 960, 8), (49, 7, 4, 96, 2), (10, 3, 3, 7, 1), (784, 56, 14, 144, 3)]
        {
            let strips = Strips { pixels, unit, bands, channels, strips };
            let mut times = vec![0; pixels * channels];
            for (pixels, of_each) in (0..strips.count()).map(|i| strips.part(i)) {
                pixels.for_each(|pixel| of_each.clone().for_each(|c| times[pixel * channels + c] += 1));
            }
            assert!(times.iter().all(|&n| n == 1), "{pixels} pixels of {channels} channels");
        }
    }
}
