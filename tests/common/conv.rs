//! Convolutions whose results are known exactly, and which the driver has a kernel for.

use super::*;

/// Convolutions of float images side by side, image `i` from input `i` to output `i`: whatever the window, a result is
/// one more than twice the value it is made of.
#[derive(Clone, Copy)]
pub struct Convolutions {
    pub count: usize,
    pub side: i32,
    pub channels: i32,
    pub window: i32,
    /// Whether the model leaves the dimensions of results to the driver.
    pub untold: bool,
}

impl Default for Convolutions {
    fn default() -> Self {
        Convolutions { count: 1, side: 24, channels: 5, window: 3, untold: false }
    }
}

impl Convolutions {
    /// Elements of an image, and of a result.
    pub fn elements(&self) -> usize {
        (self.side * self.side * self.channels) as usize
    }

    /// Bytes of an image, and of a result.
    pub fn bytes(&self) -> usize {
        4 * self.elements()
    }

    pub fn model(&self) -> Model {
        use OperandLifeTime as L;
        let (channels, window) = (self.channels, self.window);
        let mut values = Vec::new();
        let mut constant = |ty, dims: &[i32], bytes: Vec<u8>| {
            let (offset, length) = (values.len() as i64, bytes.len() as i64);
            values.extend(bytes);
            let location = DataLocation { poolIndex: 0, offset, length, padding: 0 };
            Operand { location, ..operand(ty, dims, L::CONSTANT_COPY) }
        };
        let taps = (channels * window * window * channels) as usize;
        let mut filter = vec![0.0; taps];
        for channel in 0..channels {
            let centre = ((channel * window + window / 2) * window + window / 2) * channels;
            filter[(centre + channel) as usize] = 2.0;
        }
        let float = OperandType::TENSOR_FLOAT32;
        let (same_padding, stride, no_activation) = (1i32, 1i32, 0i32);
        let mut operands = vec![
            constant(float, &[channels, window, window, channels], floats(&filter)),
            constant(float, &[channels], floats(&vec![1.0; channels as usize])),
        ];
        for code in [same_padding, stride, stride, no_activation] {
            operands.push(constant(OperandType::INT32, &[], code.to_le_bytes().to_vec()));
        }
        let mut main = Subgraph {
            operands,
            operations: Vec::new(),
            inputIndexes: Vec::new(),
            outputIndexes: Vec::new(),
        };
        for _ in 0..self.count {
            let image = |lifetime| operand(float, &[1, self.side, self.side, channels], lifetime);
            let input = main.operands.len() as i32;
            let result = match self.untold {
                true => operand(float, &[], L::SUBGRAPH_OUTPUT),
                false => image(L::SUBGRAPH_OUTPUT),
            };
            main.operands.extend([image(L::SUBGRAPH_INPUT), result]);
            main.inputIndexes.push(input);
            main.outputIndexes.push(input + 1);
            main.operations.push(Operation {
                r#type: OperationType::CONV_2D,
                inputs: vec![input, 0, 1, 2, 3, 4, 5],
                outputs: vec![input + 1],
            });
        }
        Model { main, operandValues: values, ..Default::default() }
    }

    /// An image, another one for each `seed`, of values that floats hold exactly.
    pub fn image(&self, seed: usize) -> Vec<f32> {
        (0..self.elements()).map(|i| ((i * 7 + seed * 31) % 251) as f32 - 100.0).collect()
    }

    /// What becomes of an image.
    pub fn result(image: &[f32]) -> Vec<u8> {
        floats(&image.iter().map(|x| 2.0 * x + 1.0).collect::<Vec<_>>())
    }
}
