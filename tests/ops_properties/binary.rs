//! Operations on two broadcast operands, and SELECT.

use crate::support::*;
use OperandType::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property { name: "arithmetic", operations: &[ADD, SUB, MUL, DIV], cases: 400, case: arithmetic },
    Property { name: "int arithmetic", operations: &[ADD, SUB, MUL, DIV], cases: 100, case: int_arithmetic },
    Property { name: "extremes", operations: &[MAXIMUM, MINIMUM], cases: 150, case: extremes },
    Property { name: "pow", operations: &[POW], cases: 60, case: pow },
    Property { name: "prelu", operations: &[PRELU], cases: 150, case: prelu },
    Property {
        name: "comparisons",
        operations: &[EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL],
        cases: 200,
        case: comparisons,
    },
    Property { name: "logical", operations: &[LOGICAL_AND, LOGICAL_OR], cases: 60, case: logical },
    Property { name: "select", operations: &[SELECT], cases: 100, case: select },
];

/// Dimensions of two operands that broadcast, and of their result.
fn broadcast_dims(random: &mut Random, largest_rank: usize) -> [Vec<usize>; 3] {
    let rank = random.size(1, largest_rank);
    let mut out = random.dims(rank, 4);
    if random.one_in(20) {
        out[random.below(rank)] = 0;
    }
    let mut operand = |full: bool| -> Vec<usize> {
        let keep = if full { rank } else { random.size(1, rank) };
        out[rank - keep..].iter().map(|&d| if random.one_in(4) { 1 } else { d }).collect()
    };
    let (a, b) = (operand(true), operand(false));
    let b_at = |i: usize| (i + b.len()).checked_sub(rank).map_or(1, |i| b[i]);
    let out = (0..rank).map(|i| if a[i] == 1 { b_at(i) } else { a[i] }).collect();
    if random.coin() {
        [a, b, out]
    } else {
        [b, a, out]
    }
}

fn combine(a: &Value, b: &Value, out: &[usize], f: impl Fn(f64, f64) -> f64) -> Nd {
    let (a, b) = (a.reals(), b.reals());
    Nd::from_fn(out, |i| f(a.broadcast(i), b.broadcast(i)))
}

fn arithmetic(random: &mut Random) {
    let [a, b, out] = broadcast_dims(random, 4);
    let operation = random.pick(&[ADD, SUB, MUL, DIV]);
    let ty = random.pick(if operation == DIV { &FLOATS } else { &COMMON[..] });
    let (a, mut b) = (random.tensor(ty, &a), random.tensor(ty, &b));
    if operation == DIV {
        b = random.floats(ty, &b.dims(), 0.25, 4.0);
    }
    let (mut scale, zero_point) = quantisation(ty, random);
    if operation == MUL && is_quantised(ty) {
        scale = a.info.scale * b.info.scale * random.pick(&[1.5, 20.0, 100.0]);
    }
    let code = random.below(4) as i32;
    let declared = TensorInfo { scale, zero_point, ..a.like() };
    let got = call(operation, &[&a, &b, &int(code)], &[declared]).remove(0);
    let want = combine(&a, &b, &out, |a, b| {
        let result = match operation {
            ADD => a + b,
            SUB => a - b,
            MUL => a * b,
            _ => a / b,
        };
        activate(code, result)
    });
    expect(&got, &want);
}

fn int_arithmetic(random: &mut Random) {
    let [a, b, out] = broadcast_dims(random, 4);
    let operation = random.pick(&[ADD, SUB, MUL, DIV]);
    let (mut a, mut b) = (random.tensor(TENSOR_INT32, &a), random.tensor(TENSOR_INT32, &b));
    for value in [&mut a, &mut b] {
        let wild = random.one_in(3);
        let raw: Vec<f64> = value
            .numbers()
            .at
            .iter()
            .map(|&x| match (x, wild) {
                (0.0, _) => 7.0,
                (x, true) if x > 900.0 => i32::MIN.into(),
                (x, true) => x * 1_000_003.0,
                _ => x,
            })
            .collect();
        *value = Value::of_numbers(value.info.clone(), &raw);
    }
    let got = call(operation, &[&a, &b, &int(0)], &[a.like()]).remove(0);
    let want = combine(&a, &b, &out, |a, b| {
        let (a, b) = (a as i64, b as i64);
        let exact = match operation {
            ADD => a + b,
            SUB => a - b,
            MUL => a * b,
            _ => (a as f64 / b as f64).floor() as i64,
        };
        f64::from(exact as i32)
    });
    expect(&got, &want);
}

fn extremes(random: &mut Random) {
    let [a, b, out] = broadcast_dims(random, 6);
    let operation = random.pick(&[MAXIMUM, MINIMUM]);
    let ty = random.pick(&COMMON_AND_INT);
    let (a, b) = (random.tensor(ty, &a), random.tensor(ty, &b));
    let (scale, zero_point) = quantisation(ty, random);
    let got = call(operation, &[&a, &b], &[TensorInfo { scale, zero_point, ..a.like() }]).remove(0);
    let want = combine(&a, &b, &out, |a, b| if operation == MAXIMUM { a.max(b) } else { a.min(b) });
    expect_within(&got, &want, 0.501);
}

fn pow(random: &mut Random) {
    let [a, b, out] = broadcast_dims(random, 6);
    let ty = random.pick(&FLOATS);
    let (a, b) = match random.coin() {
        true => (random.floats(ty, &a, 0.1, 3.0), random.floats(ty, &b, -3.0, 3.0)),
        false => {
            let exponents: Vec<f64> = (0..b.iter().product()).map(|_| random.range(-3, 3) as f64).collect();
            let base = random.floats(ty, &a, -3.0, -0.5);
            let dims: Vec<u32> = b.iter().map(|&d| d as u32).collect();
            (base, Value::of_reals(TensorInfo::new(ty, &dims), &exponents))
        }
    };
    let got = call(POW, &[&a, &b], &[a.like()]).remove(0);
    expect(&got, &combine(&a, &b, &out, f64::powf));
}

fn prelu(random: &mut Random) {
    let [a, b, out] = broadcast_dims(random, 6);
    let ty = random.pick(&COMMON);
    let (a, b) = (random.tensor(ty, &a), random.tensor(ty, &b));
    let (scale, zero_point) = quantisation(ty, random);
    let got = call(PRELU, &[&a, &b], &[TensorInfo { scale, zero_point, ..a.like() }]).remove(0);
    let want = combine(&a, &b, &out, |a, alpha| if a >= 0.0 { a } else { a * alpha });
    expect(&got, &want);
}

fn comparisons(random: &mut Random) {
    let [a, b, out] = broadcast_dims(random, 6);
    let operation = random.pick(&[EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL]);
    let ty = random.pick(&[
        TENSOR_BOOL8,
        TENSOR_FLOAT32,
        TENSOR_FLOAT16,
        TENSOR_INT32,
        TENSOR_QUANT8_ASYMM,
        TENSOR_QUANT8_ASYMM_SIGNED,
    ]);
    // Scales that make every real number exact, so that equality is well defined; zero points close enough for it.
    let mut value = |dims: &[usize]| {
        let scale = if is_quantised(ty) { random.pick(&[0.5, 1.0, 2.0]) } else { 0.0 };
        let zero_point = if is_quantised(ty) { random.range(100, 127) as i32 } else { 0 };
        random.fill(ty, dims, scale, zero_point)
    };
    let (a, mut b) = (value(&a), value(&b));
    if random.coin() && a.info.dims == b.info.dims {
        b = a.clone();
    }
    let got = call(operation, &[&a, &b], &[TensorInfo::new(TENSOR_BOOL8, &[])]).remove(0);
    let want = combine(&a, &b, &out, |a, b| {
        let holds = match operation {
            EQUAL => a == b,
            NOT_EQUAL => a != b,
            LESS => a < b,
            LESS_EQUAL => a <= b,
            GREATER => a > b,
            _ => a >= b,
        };
        f64::from(u8::from(holds))
    });
    expect_exactly(&got, &want);
}

fn logical(random: &mut Random) {
    let [a, b, out] = broadcast_dims(random, 6);
    let operation = random.pick(&[LOGICAL_AND, LOGICAL_OR]);
    let (mut a, b) = (random.tensor(TENSOR_BOOL8, &a), random.tensor(TENSOR_BOOL8, &b));
    a.data.iter_mut().for_each(|byte| *byte *= 3); // any non-zero byte is true
    let got = call(operation, &[&a, &b], &[a.like()]).remove(0);
    let want = combine(&a, &b, &out, |a, b| {
        let holds = if operation == LOGICAL_AND { a != 0.0 && b != 0.0 } else { a != 0.0 || b != 0.0 };
        f64::from(u8::from(holds))
    });
    expect_exactly(&got, &want);
}

fn select(random: &mut Random) {
    let rank = random.size(1, 6);
    let dims = random.dims(rank, 3);
    let ty = random.pick(&COMMON_AND_INT);
    let condition = random.tensor(TENSOR_BOOL8, &dims);
    let (a, b) = (random.tensor(ty, &dims), random.tensor(ty, &dims));
    let (scale, zero_point) = quantisation(ty, random);
    let got = call(SELECT, &[&condition, &a, &b], &[TensorInfo { scale, zero_point, ..a.like() }]).remove(0);
    let (chosen, [a, b]) = (condition.numbers(), [a.reals(), b.reals()]);
    expect_within(
        &got,
        &Nd::from_fn(&dims, |i| if chosen.get(i) != 0.0 { a.get(i) } else { b.get(i) }),
        0.501,
    );
}
