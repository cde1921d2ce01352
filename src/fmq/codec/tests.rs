//! Tests of the packets: their exact bytes, and everything that is none.

use super::*;
use proptest::prelude::*;

fn request() -> RequestPacket {
    RequestPacket {
        inputs: vec![
            Argument { has_no_value: false, pool: 1, offset: 64, length: 12, dims: vec![1, 3] },
            Argument { has_no_value: true, ..Default::default() },
        ],
        outputs: vec![Argument { has_no_value: false, pool: 0, offset: 8, length: 12, dims: vec![] }],
        slots: vec![7, -1],
        measure: true,
    }
}

/// Tag and 32-bit words of each datum, little-endian machines only as all of Android's are.
fn words(bytes: &[u8]) -> Vec<[u32; 6]> {
    let word = |b: &[u8]| u32::from_ne_bytes(b.try_into().unwrap());
    bytes.chunks(24).map(|d| std::array::from_fn(|i| word(&d[4 * i..4 * i + 4]))).collect()
}

#[test]
fn a_request_has_the_layout_of_hal_1_2() {
    assert_eq!(
        words(&request().encode()),
        [
            [0, 9, 2, 1, 2, 0],
            [1, 0, 1, 64, 12, 2],
            [2, 1, 0, 0, 0, 0],
            [2, 3, 0, 0, 0, 0],
            [1, 1, 0, 0, 0, 0],
            [3, 0, 0, 8, 12, 0],
            [5, 7, 0, 0, 0, 0],
            [5, u32::MAX, 0, 0, 0, 0],
            [6, 1, 0, 0, 0, 0],
        ]
    );
}

#[test]
fn a_result_has_the_layout_of_hal_1_2() {
    let shape = OutputShape { sufficient: true, dims: vec![4] };
    let packet = ResultPacket { status: 3, shapes: vec![shape], timing: (5, (6 << 32) | 7) };
    assert_eq!(
        words(&packet.encode()),
        [[0, 0, 4, 3, 1, 0], [1, 0, 1, 1, 0, 0], [2, 0, 4, 0, 0, 0], [3, 0, 5, 0, 7, 6]]
    );
    let failure = ResultPacket::failure().encode();
    let most = u32::MAX;
    assert_eq!(words(&failure), [[0, 0, 2, 2, 0, 0], [3, 0, most, most, most, most]]);
}

#[test]
fn any_lost_or_added_datum_is_noticed() {
    let bytes = request().encode();
    for len in 0..bytes.len() {
        assert!(RequestPacket::parse(&bytes[..len]).is_err(), "{len}");
    }
    let mut longer = bytes.clone();
    longer.extend([0; QUANTUM]);
    assert!(RequestPacket::parse(&longer).is_err());
    // Even where the size says so.
    longer[4] += 1;
    assert_eq!(RequestPacket::parse(&longer), Err(IllFormed("it goes on after its end")));
}

#[test]
fn counts_are_not_believed() {
    let bytes = request().encode();
    // The counts of operands and pools, and of the first operand's dimensions.
    for place in [8, 12, 16, QUANTUM + 20] {
        for lie in [0u32, 3, 9, 1 << 20, u32::MAX] {
            let mut bytes = bytes.clone();
            bytes[place..place + 4].copy_from_slice(&lie.to_ne_bytes());
            assert!(RequestPacket::parse(&bytes).is_err(), "{lie} at {place}");
        }
    }
    let mut result = ResultPacket::failure().encode();
    result[16..20].copy_from_slice(&u32::MAX.to_ne_bytes());
    assert!(ResultPacket::parse(&result).is_err());
}

#[test]
fn values_that_do_not_exist_are_ill_formed() {
    let bytes = request().encode();
    // Every tag, a truth value, and whether to measure.
    let tags = (0..bytes.len()).step_by(QUANTUM);
    for place in tags.chain([QUANTUM + 4, bytes.len() - QUANTUM + 4]) {
        for value in [7, 2 + bytes[place], 255] {
            let mut bytes = bytes.clone();
            bytes[place] = value;
            assert!(RequestPacket::parse(&bytes).is_err(), "{value} at {place}");
        }
    }
}

fn argument() -> impl Strategy<Value = Argument> {
    let numbers = (any::<bool>(), any::<u32>(), any::<u32>(), any::<u32>());
    (numbers, prop::collection::vec(any::<u32>(), 0..4)).prop_map(
        |((has_no_value, pool, offset, length), dims)| Argument { has_no_value, pool, offset, length, dims },
    )
}

proptest! {
    #[test]
    fn packets_survive_the_way(
        inputs in prop::collection::vec(argument(), 0..4),
        outputs in prop::collection::vec(argument(), 0..4),
        slots in prop::collection::vec(any::<i32>(), 0..4),
        measure: bool,
        status: i32,
        timing: (u64, u64),
    ) {
        let shape = |a: &Argument| OutputShape { sufficient: a.has_no_value, dims: a.dims.clone() };
        let result = ResultPacket { status, shapes: outputs.iter().map(shape).collect(), timing };
        prop_assert_eq!(ResultPacket::parse(&result.encode()), Ok(result));
        let request = RequestPacket { inputs, outputs, slots, measure };
        prop_assert_eq!(RequestPacket::parse(&request.encode()), Ok(request));
    }

    /// Whatever is accepted says all that the packet said: nothing is read in two ways.
    #[test]
    fn noise_is_refused_or_understood(
        places in prop::collection::vec((0..9 * QUANTUM, any::<u8>()), 0..6),
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = request().encode();
        for (place, value) in places { bytes[place] = value; }
        if let Ok(packet) = RequestPacket::parse(&bytes) {
            prop_assert_eq!(RequestPacket::parse(&packet.encode()), Ok(packet));
        }
        let _ = ResultPacket::parse(&bytes);
        let _ = RequestPacket::parse(&noise);
        let _ = ResultPacket::parse(&noise);
    }
}
