//! Windows that slide over images, for convolutions and pools: paddings, strides, dilation.

use crate::support::*;

/// One spatial dimension of a sliding window.
#[derive(Clone, Copy, Debug)]
pub struct Slide {
    pub head: i64,
    pub tail: i64,
    pub stride: i64,
    pub dilation: i64,
    pub filter: i64,
    pub input: i64,
}

impl Slide {
    fn reach(&self) -> i64 {
        (self.filter - 1) * self.dilation + 1
    }

    /// How many places the window takes.
    pub fn output(&self) -> usize {
        ((self.input + self.head + self.tail - self.reach()) / self.stride + 1) as usize
    }

    /// Where tap `k` of place `o` lies in the input, which may be outside.
    pub fn at(&self, o: usize, k: usize) -> i64 {
        o as i64 * self.stride - self.head + k as i64 * self.dilation
    }
}

/// How the paddings of a call are given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Padding {
    Same,
    Valid,
    Explicit,
}

/// A window over height and width.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub padding: Padding,
    pub h: Slide,
    pub w: Slide,
}

impl Window {
    pub fn random(random: &mut Random, most_dilation: i64) -> Window {
        let padding = random.pick(&[Padding::Same, Padding::Valid, Padding::Explicit]);
        Window { padding, h: slide(padding, most_dilation, random), w: slide(padding, most_dilation, random) }
    }

    /// The paddings as inputs: a scheme, or left, right, top, bottom.
    pub fn padding_inputs(&self) -> Vec<Value> {
        match self.padding {
            Padding::Same => vec![int(1)],
            Padding::Valid => vec![int(2)],
            Padding::Explicit => {
                [self.w.head, self.w.tail, self.h.head, self.h.tail].map(|p| int(p as i32)).to_vec()
            }
        }
    }

    pub fn stride_inputs(&self) -> Vec<Value> {
        vec![int(self.w.stride as i32), int(self.h.stride as i32)]
    }
}

fn slide(padding: Padding, most_dilation: i64, random: &mut Random) -> Slide {
    loop {
        let mut slide = Slide {
            head: 0,
            tail: 0,
            stride: random.range(1, 3),
            dilation: random.range(1, most_dilation),
            filter: random.range(1, 4),
            input: random.range(1, 7),
        };
        match padding {
            Padding::Valid => {}
            Padding::Same => {
                let out = (slide.input + slide.stride - 1) / slide.stride;
                let total = ((out - 1) * slide.stride + slide.reach() - slide.input).max(0);
                (slide.head, slide.tail) = (total / 2, total - total / 2);
            }
            // No padding may hold a whole window.
            Padding::Explicit => {
                slide.head = random.range(0, slide.reach() - 1);
                slide.tail = random.range(0, slide.reach() - 1);
            }
        }
        if slide.input + slide.head + slide.tail >= slide.reach() {
            return slide;
        }
    }
}
