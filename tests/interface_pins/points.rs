//! The generated code passes points while it reads and frees what may be large: without them a thread that does would be put
//! aside by no other for milliseconds.

use binder::Parcel;
use nnhal::aidl::{Model, Operation};
use nnhal::points;
use std::cell::Cell;

thread_local!(static DONE: Cell<u32> = const { Cell::new(0) });

/// How often something was done while a model of so many operations was read, and while it was freed.
fn done_with(operations: usize) -> (u32, u32) {
    let mut model = Model::default();
    model.main.operations = vec![Operation::default(); operations];
    let mut parcel = Parcel::new();
    parcel.write(&model).expect("written");
    parcel.set_data_position(0);
    DONE.set(0);
    let read: Model = parcel.read().expect("read");
    assert!(read.main == model.main);
    let while_read = DONE.take();
    drop(read);
    (while_read, DONE.take())
}

#[test]
fn points_are_passed_while_a_model_is_read_and_freed() {
    assert_eq!(done_with(10_000), (0, 0));
    points::at_each(Some(|| DONE.set(DONE.get() + 1)));
    let ((few, fewer), (many, as_many)) = (done_with(100), done_with(10_000));
    assert!((1..10).contains(&few) && (1..10).contains(&fewer), "{few} and {fewer}");
    assert!((500..1000).contains(&many) && (500..1000).contains(&as_many), "{many} and {as_many}");
    points::at_each(None);
    assert_eq!(done_with(10_000), (0, 0));
}
