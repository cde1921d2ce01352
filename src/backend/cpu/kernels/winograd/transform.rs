//! The sums of Winograd's convolution, in vectors over channels.

use super::super::dispatch::dispatch;
use super::super::isa::Isa;
use super::super::simd::Simd;

type Made = super::Made<f32>;

/// Inputs and outputs of a tile, along each dimension.
pub const READ: usize = 4;
pub const WRITTEN: usize = 2;
/// Places of a tile.
pub const PLACES: usize = READ * READ;

/// Makes the places of a tile, `distance` elements from one to the next, of the pixels under it, row by row.
///
/// # Safety
/// Pointers must be valid for so many channels.
pub unsafe fn to_places(
    isa: Isa,
    from: &[*const f32; PLACES],
    channels: usize,
    to: *mut f32,
    distance: usize,
) {
    spread(isa, from, channels, to, distance);
}

dispatch! {
    /// [`to_places`].
    fn spread => spread_with(from: &[*const f32; PLACES], channels: usize, to: *mut f32, distance: usize)
}

/// # Safety
/// The machine must have the instruction set of `S`; the rest is [`to_places`]'s.
#[inline(always)]
unsafe fn spread_with<S: Simd>(from: &[*const f32; PLACES], channels: usize, to: *mut f32, distance: usize) {
    let whole = channels / S::LANES * S::LANES;
    // SAFETY: by contract.
    unsafe {
        for start in (0..whole).step_by(S::LANES) {
            spread_lanes::<S, true>(from, start, S::LANES, to, distance);
        }
        if whole < channels {
            spread_lanes::<S, false>(from, whole, channels - whole, to, distance);
        }
    }
}

/// The same of `count` channels from `start` on, a vector of them if they are `WHOLE`.
///
/// # Safety
/// As above.
#[inline(always)]
unsafe fn spread_lanes<S: Simd, const WHOLE: bool>(
    from: &[*const f32; PLACES],
    start: usize,
    count: usize,
    to: *mut f32,
    distance: usize,
) {
    // SAFETY: by contract.
    unsafe {
        let mut pixels = [S::splat(0.0); PLACES];
        for (pixel, from) in pixels.iter_mut().zip(from) {
            let from = from.wrapping_add(start);
            *pixel = if WHOLE { S::load(from) } else { S::load_some(from, count) };
        }
        for i in 0..READ {
            // What comes of the rows, a column each.
            let mut row = [S::splat(0.0); READ];
            for (j, to) in row.iter_mut().enumerate() {
                let [a, b, c, d] = [pixels[j], pixels[READ + j], pixels[2 * READ + j], pixels[3 * READ + j]];
                *to = match i {
                    0 => S::sub(a, c),
                    1 => S::add(b, c),
                    2 => S::sub(c, b),
                    _ => S::sub(b, d),
                };
            }
            let [a, b, c, d] = row;
            let made = [S::sub(a, c), S::add(b, c), S::sub(c, b), S::sub(b, d)];
            for (j, made) in made.into_iter().enumerate() {
                let to = to.wrapping_add((i * READ + j) * distance + start);
                if WHOLE {
                    S::store(to, made);
                } else {
                    S::store_some(to, made, count);
                }
            }
        }
    }
}

/// Makes the outputs of a tile, within bounds, of the sums of its places, `distance` elements from one to the next.
///
/// # Safety
/// The sums must be there for whole vectors, the outputs for their channels.
pub unsafe fn from_places(isa: Isa, from: *const f32, distance: usize, range: (f32, f32), made: Made) {
    gather(isa, from, distance, range, made);
}

dispatch! {
    /// [`from_places`].
    fn gather => gather_with(from: *const f32, distance: usize, range: (f32, f32), made: Made)
}

/// # Safety
/// The machine must have the instruction set of `S`; the rest is [`from_places`]'s.
#[inline(always)]
unsafe fn gather_with<S: Simd>(from: *const f32, distance: usize, (lo, hi): (f32, f32), made: Made) {
    // SAFETY: by contract.
    unsafe {
        let (lo, hi) = (S::splat(lo), S::splat(hi));
        for start in (0..made.channels).step_by(S::LANES) {
            // What comes of the rows, a column each.
            let mut above = [S::splat(0.0); READ];
            let mut below = [S::splat(0.0); READ];
            for j in 0..READ {
                let from = from.wrapping_add(j * distance + start);
                let [a, b] = [S::load(from), S::load(from.wrapping_add(READ * distance))];
                let [c, d] = [2, 3].map(|row| from.wrapping_add(row * READ * distance));
                let [c, d] = [S::load(c), S::load(d)];
                above[j] = S::add(S::add(a, b), c);
                below[j] = S::sub(S::sub(b, c), d);
            }
            let count = made.channels - start;
            for (i, [a, b, c, d]) in [above, below].into_iter().enumerate().take(made.rows) {
                let outputs = [S::add(S::add(a, b), c), S::sub(S::sub(b, c), d)];
                for (j, output) in outputs.into_iter().enumerate().take(made.columns) {
                    let to = made.to.wrapping_add(i * made.line + j * made.pixel + start);
                    let output = S::clamp(output, lo, hi);
                    if count >= S::LANES {
                        S::store(to, output);
                    } else {
                        S::store_some(to, output, count);
                    }
                }
            }
        }
    }
}
