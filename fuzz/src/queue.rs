//! A queue's description as a client sends it, and what the client then does to the queue's memory.
//!
//! An input: the files that the description names, its parcel's length, the parcel without files, and steps of both ends.

#![no_main]

use binder::fmq::{MQDescriptor, SynchronizedReadWrite};
use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use nnhal::fmq::{Descriptor, FmqError, Limit, Queue, Reader, Writer};
use nnhal_fuzz::{bytes, file, next, shared_memory};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const QUANTUM: usize = 24;
const MAX_ELEMENTS: usize = 64;

/// What both ends do, and what the peer does to the memory behind their backs.
fn use_queue(
    mut reader: Reader,
    mut writer: Writer,
    memory: &File,
    input: &mut Unstructured,
) -> Result<(), FmqError> {
    let now = Limit::new(Some(Duration::ZERO));
    let mut room = [0; QUANTUM * (MAX_ELEMENTS + 1)];
    while !input.is_empty() {
        let (step, count) = (next::<u8>(input), usize::from(next::<u8>(input)));
        let len = count.min(MAX_ELEMENTS) * QUANTUM + usize::from(step >> 7);
        match step & 15 {
            0 | 1 => {
                let value = next::<u64>(input);
                // A counter or the event flag, where most descriptions have them; or anything.
                let place = if step & 64 == 0 { (count as u64 % 3) * 8 } else { next::<u16>(input).into() };
                let _ = memory.write_all_at(&value.to_ne_bytes(), place);
            }
            2 => drop(reader.available()?),
            3 => drop(reader.read(&mut room[..len])?),
            4 => drop(writer.available()?),
            5 => drop(writer.write(&room[..len])?),
            6 => drop(reader.wait(count, &now)),
            7 => drop(reader.read_blocking(&mut room[..len], &now)),
            8 => drop(writer.write_blocking(&room[..len], &now)),
            9 => {
                if let Some(transaction) = reader.begin(len)? {
                    let _ = transaction.copy(usize::from(next::<u8>(input)), &mut room[..len / 2]);
                    transaction.commit()?;
                }
            }
            10 => {
                if let Some(mut transaction) = writer.begin(len)? {
                    let _ = transaction.copy(usize::from(next::<u8>(input)), &room[..len / 2]);
                    transaction.commit()?;
                }
            }
            11 => reader.waker().interrupt(),
            12 => writer.waker().interrupt(),
            13 => {
                // It vanishes: what is beyond its end must not end the process.
                let _ = memory.set_len(u64::from(next::<u8>(input)) * 64);
            }
            14 => drop(reader.wait(count, &Limit::new(None).or_until(&|| true))),
            _ => drop(writer.capacity()),
        }
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let kinds = bytes(&mut input, 2);
    let [count, kind] = [0, 1].map(|i| kinds.get(i).copied().unwrap_or(0));
    let length = usize::from(next::<u8>(&mut input)) * 4;
    let Ok(mut sent) =
        binder::from_bytes::<MQDescriptor<i8, SynchronizedReadWrite>>(bytes(&mut input, length))
    else {
        return;
    };
    let memory = shared_memory();
    for i in 0..count % 6 {
        let other = kind >> i & 1 == 1;
        sent.handle.fds.push(match other {
            false => binder::ParcelFileDescriptor::new(memory.try_clone().expect("descriptors")),
            true => file(kind.wrapping_add(i)),
        });
    }
    let descriptor = Descriptor::from_aidl(&sent);
    let attach = || Queue::attach(&descriptor, QUANTUM, MAX_ELEMENTS);
    let (Ok(first), Ok(second)) = (attach(), attach()) else { return };
    let back = descriptor.to_aidl::<i8>().expect("it came so");
    assert_eq!(Descriptor::from_aidl(&back).grantors, descriptor.grantors);
    // As a client may have left the counters.
    let (read, write) = (next::<u16>(&mut input), next::<u16>(&mut input));
    for (value, place) in [(read, 0), (write, 8)] {
        let _ = memory.write_all_at(&u64::from(value).to_ne_bytes(), place);
    }
    if let (Ok(reader), Ok(writer)) = (Reader::new(first), Writer::new(second)) {
        let _ = use_queue(reader, writer, &memory, &mut input);
    }
});
