//! Hash projections and random draws.

use crate::support::*;
use OperandType::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property { name: "LSH_PROJECTION", operations: &[LSH_PROJECTION], cases: 80, case: lsh },
    Property { name: "RANDOM_MULTINOMIAL", operations: &[RANDOM_MULTINOMIAL], cases: 20, case: multinomial },
];

fn lsh(random: &mut Random) {
    let float = random.pick(&FLOATS);
    let (hashes, bits) = (random.size(1, 4), random.size(1, 10));
    let hash = random.tensor(float, &[hashes, bits]);
    let ty = random.pick(&[TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_INT32, TENSOR_QUANT8_ASYMM]);
    let rank = random.size(1, 3);
    let dims = random.dims(rank, 4);
    let input = random.tensor(ty, &dims);
    let projection = random.range(1, 3);
    let weight = (projection == 2 || random.coin()).then(|| random.tensor(float, &[dims[0]]));
    let kind = int(projection as i32);
    let inputs = [Some(&hash), Some(&input), weight.as_ref(), Some(&kind)];
    let got = call_with(LSH_PROJECTION, &inputs, &[TensorInfo::new(TENSOR_INT32, &[])]).remove(0);
    let items: Vec<&[u8]> = input.data.chunks(input.data.len() / dims[0]).collect();
    let weights = weight.map(|weight| weight.reals().at);
    let bit = |seed: f64| {
        let score: f64 = (0..items.len())
            .map(|i| {
                let key = [&(seed as f32).to_le_bytes(), items[i]].concat();
                let hash = farmhash::fingerprint64(&key) as i64;
                hash as f64 * weights.as_ref().map_or(1.0, |weights| weights[i])
            })
            .sum();
        f64::from(u8::from(score > 0.0))
    };
    let all = hash.reals().map(bit);
    let want = match projection {
        2 => Nd { dims: vec![hashes * bits], at: all.at },
        _ => Nd::from_fn(&[hashes], |i| {
            let packed = (0..bits).fold(0.0, |packed, b| packed * 2.0 + all.get(&[i[0], b]));
            packed + if projection == 3 { (i[0] << bits) as f64 } else { 0.0 }
        }),
    };
    expect_exactly(&got, &want);
}

/// Classes come as often as their logits say, and the same seeds give the same draws.
fn multinomial(random: &mut Random) {
    let ty = random.pick(&FLOATS);
    let (batch, classes, samples) = (random.size(1, 2), random.size(2, 4), 4096);
    let logits = random.floats(ty, &[batch, classes], -1.0, 1.0);
    let seeds = ints(&[random.range(1, 1000) as i32, random.range(1, 1000) as i32]);
    let inputs = [&logits, &int(samples), &seeds];
    let draw = || call(RANDOM_MULTINOMIAL, &inputs, &[TensorInfo::new(TENSOR_INT32, &[])]).remove(0);
    let got = draw();
    assert_eq!(got.data[..], draw().data[..], "the same seeds");
    assert_eq!(got.dims(), [batch, samples as usize]);
    let reals = logits.reals();
    for (row, drawn) in got.numbers().at.chunks(samples as usize).enumerate() {
        let weights: Vec<f64> = (0..classes).map(|c| reals.get(&[row, c]).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (class, weight) in weights.iter().enumerate() {
            let often = drawn.iter().filter(|&&d| d == class as f64).count() as f64 / f64::from(samples);
            // Over four standard deviations of a draw of this size.
            assert!((often - weight / total).abs() < 0.035, "{class}: {often}, not {}", weight / total);
        }
        assert!(drawn.iter().all(|&d| d >= 0.0 && d < classes as f64));
    }
}
