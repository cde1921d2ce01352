//! Tests of how models are hashed.

use super::*;
use crate::memory::{AlignedBuf, Budget, ClientSlice, Mapping};
use crate::model::Operand;
use crate::ops::testing::Counting;
use crate::ops::{NeverInterrupted, OpError};
use crate::scheduler::Yield;
use crate::tensor::OperandType;
use std::sync::Arc;

fn private(bytes: &[u8]) -> Constant {
    Constant::Private(Arc::new(AlignedBuf::copy_of(bytes).expect("memory")))
}

fn client(bytes: &[u8]) -> Constant {
    let slice = ClientSlice::whole(Arc::new(Mapping::anonymous(bytes.len()).unwrap()));
    slice.write(bytes).unwrap();
    Constant::Client(slice)
}

fn outline(constants: &[Constant]) -> Outline {
    outline_of(constants).expect("it has a name")
}

fn outline_of(constants: &[Constant]) -> Option<Outline> {
    let operand = |constant: &Constant| Operand {
        extension: None,
        info: TensorInfo::new(OperandType::TENSOR_QUANT8_ASYMM, &[]),
        lifetime: Lifetime::Constant(constant.clone()),
    };
    let operands = constants.iter().map(operand).collect();
    let main = Subgraph { operands, operations: vec![], inputs: vec![], outputs: vec![] };
    let model = Model { main, referenced: vec![], relaxed: false };
    Outline::new(&model, &CompileOptions::default(), &NeverInterrupted).unwrap()
}

fn hash_of(constants: &[Constant]) -> Digest256 {
    outline(constants).hash(Threads::ONE, &Control::default()).unwrap().0
}

#[test]
fn whoever_hashes_wherever_it_lies_the_hash_is_the_same() {
    let large: Vec<u8> = (0..5 * BLOCK + CHUNK + 1).map(|i| (i * 31 % 251) as u8).collect();
    let (mine, theirs) =
        (outline(&[private(&large), private(&[7; 3])]), outline(&[client(&large), client(&[7; 3])]));
    let control = Control::default();
    let expected = mine.hash(Threads::ONE, &control).unwrap();
    assert_eq!((expected.1.len(), expected.1.contains(&Sum::default())), (7, false));
    for outline in [&mine, &theirs] {
        for most in [0, 2, 3, 8] {
            let threads = Threads { most, is_idle: &|| true };
            assert_eq!(outline.hash(threads, &control).unwrap(), expected);
            assert_eq!(outline.sums(threads, &control).unwrap(), expected.1);
        }
        assert_eq!(outline.hash_unless_changed(&expected.1, &Control::default()).unwrap(), Some(expected.0));
    }
}

fn name_of(constants: &[Constant]) -> Digest256 {
    let outline = outline(constants);
    outline.name(&outline.sums(Threads::ONE, &Control::default()).unwrap())
}

#[test]
fn every_byte_and_every_length_counts() {
    [hash_of, name_of].into_iter().for_each(distinguishes);
}

fn distinguishes(hash_of: fn(&[Constant]) -> Digest256) {
    let bytes = vec![1; 2 * BLOCK];
    let mut hashes = vec![hash_of(&[client(&bytes)])];
    for at in [0, BLOCK - 1, BLOCK, 2 * BLOCK - 1] {
        let mut other = bytes.clone();
        other[at] ^= 0x80;
        hashes.push(hash_of(&[client(&other)]));
    }
    // All these have one outline.
    assert!(hashes.iter().all(|hash| hash[..8] == hashes[0][..8]));
    // The same bytes one after the other, and the same blocks.
    hashes.push(hash_of(&[client(&bytes[..BLOCK]), client(&bytes[BLOCK..])]));
    hashes.push(hash_of(&[client(&bytes), private(&[])]));
    hashes.push(hash_of(&[client(&bytes[1..]), client(&bytes[..1])]));
    let count = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
}

#[test]
fn what_is_hashed_later_is_hashed_as_it_was_or_not_at_all() {
    let lengths = [1, 31, 33, CHUNK, BLOCK + 7];
    for len in lengths {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
        let constant = client(&bytes);
        let outline = outline(&[constant.clone(), private(&[7; 3])]);
        let sums = outline.sums(Threads::ONE, &Control::default()).unwrap();
        let hash = outline.hash_unless_changed(&sums, &Control::default()).unwrap();
        assert_eq!(hash, Some(outline.hash(Threads::ONE, &Control::default()).unwrap().0));
        let Constant::Client(slice) = constant else { panic!("made as a client's") };
        for at in [0, len / 2, len - 1] {
            for bit in [1, 0x80] {
                slice.part(at, 1).unwrap().write(&[bytes[at] ^ bit]).unwrap();
                assert_eq!(
                    outline.hash_unless_changed(&sums, &Control::default()).unwrap(),
                    None,
                    "{at} of {len}"
                );
                slice.part(at, 1).unwrap().write(&[bytes[at]]).unwrap();
            }
        }
        assert_eq!(outline.hash_unless_changed(&sums, &Control::default()).unwrap(), hash);
    }
}

#[test]
fn models_of_very_many_constants_have_no_name() {
    let many = |count| outline_of(&vec![private(&[1]); count]).is_some();
    assert!(many(MOST_BLOCKS) && !many(MOST_BLOCKS + 1));
    assert!(outline_of(&vec![private(&[]); MOST_BLOCKS + 1]).is_none());
    assert!(outline_of(&vec![private(&vec![1; 4 * BLOCK]); MOST_BLOCKS / 4 + 1]).is_none());
}

#[test]
fn the_list_of_constants_is_its_clients() {
    const CONSTANTS: usize = 1000;
    let budget = Budget::new(1 << 20);
    let _account = budget.on_account_of(1);
    let constants = vec![private(&[1]); CONSTANTS];
    let before = budget.private().held();
    let outline = outline_of(&constants).unwrap();
    assert!(budget.private().held() >= before + (CONSTANTS * size_of::<Constant>()) as u64);
    drop(outline);
    assert_eq!(budget.private().held(), before);
    // The list is not made where its client has no memory left.
    assert!(outline_of(&vec![private(&[1]); MOST_BLOCKS]).is_none());
    assert_eq!(budget.private().held(), before);
}

/// Counts how often the turn could have been given up.
#[derive(Debug, Default)]
struct Passed(AtomicUsize);

impl Yield for Passed {
    fn pass(&self, _: &Control) -> Result<(), OpError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn threads(&self) -> usize {
        1
    }
}

#[test]
fn it_gives_way_and_nobody_helps_where_others_compute() {
    const BLOCKS: usize = 8;
    let (outline, turn) = (outline(&[private(&[1; BLOCKS * BLOCK])]), Arc::new(Passed::default()));
    let control = Control { turn: Some(turn.clone()), ..Control::default() };
    let own = std::thread::current().id();
    let by_own = each(&outline.blocks(), Threads { most: 4, is_idle: &|| false }, &control, |_, _| {
        Ok(std::thread::current().id() == own)
    });
    assert_eq!(by_own.unwrap(), [true; BLOCKS]);
    assert!(turn.0.load(Ordering::Relaxed) >= BLOCKS);
}

#[test]
fn it_gives_up_when_it_is_told_to() {
    let outline = outline(&[private(&[1; 4 * BLOCK])]);
    let control = Control::default();
    control.cancelled.set();
    for most in [1, 3] {
        let result = outline.hash(Threads { most, is_idle: &|| true }, &control);
        assert!(matches!(result, Err(BackendError::Cancelled)), "{result:?}");
    }
}

#[test]
fn a_model_of_very_many_operands_is_described_with_pauses() {
    const OPERANDS: usize = 50_000;
    let operand = Operand {
        extension: None,
        info: TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1]),
        lifetime: Lifetime::Temporary,
    };
    let main =
        Subgraph { operands: vec![operand; OPERANDS], operations: vec![], inputs: vec![], outputs: vec![] };
    let (model, interrupt) = (Model { main, referenced: vec![], relaxed: false }, Counting::default());
    Outline::new(&model, &CompileOptions::default(), &interrupt).unwrap();
    // Each has some numbers of eight bytes.
    let passed = interrupt.take();
    assert!(passed >= OPERANDS >> 11, "{passed} yield points");
}
