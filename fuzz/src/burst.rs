//! A burst over message queues: packets as the driver's thread takes them out of a queue, and what it answers.
//!
//! An input: what the executor does, then packets, each with a length in datums.

#![no_main]

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use nnhal::fmq::codec::{OutputShape, RequestPacket, ResultPacket, QUANTUM};
use nnhal::fmq::{Burst, Executor, Limit, Queue, Reader, SharedQueue, Writer};
use nnhal::memory::{Mapping, Memory};
use nnhal::scheduler::{Poller, PollingBudget, Stop};
use nnhal_fuzz::{bytes, next};
use std::sync::Arc;
use std::time::Duration;

const ELEMENTS: usize = 32;

/// Gives memories, more or fewer than asked for, and answers with as many shapes as there are memories.
struct Answers {
    too_few: bool,
    none: bool,
    dims: usize,
}

impl Executor for Answers {
    fn memories(&self, slots: &[i32]) -> Result<Vec<Memory>, String> {
        if self.none {
            return Err("there are none".into());
        }
        let memory = |_: &i32| Mapping::anonymous(8).map(|mapping| Memory::Mapped(Arc::new(mapping)));
        let count = slots.len() - usize::from(self.too_few);
        slots[..count].iter().map(memory).collect::<Result<_, _>>().map_err(|why| why.to_string())
    }

    fn execute(&self, request: &RequestPacket, memories: &[Memory], _: &Arc<Stop>) -> ResultPacket {
        assert_eq!(request.slots.len(), memories.len());
        let shape = OutputShape { sufficient: request.measure, dims: vec![7; self.dims].into() };
        ResultPacket { shapes: vec![shape; memories.len()], ..ResultPacket::bare(0) }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let kind = next::<u8>(&mut input);
    let queue = || SharedQueue::create(ELEMENTS, QUANTUM).expect("shared memory");
    let (requests, results) = (queue(), queue());
    let attach =
        |queue: &SharedQueue| Queue::attach(&queue.descriptor(), QUANTUM, ELEMENTS).expect("it is right");
    let mut writer = Writer::new(attach(&requests)).expect("it is empty");
    let mut reader = Reader::new(attach(&results)).expect("it is empty");
    let executor = Answers { too_few: kind & 1 == 1, none: kind & 2 == 2, dims: usize::from(kind >> 4) };
    let poller = Poller::new((kind & 4 == 4).then(|| PollingBudget::new(1)));
    let listened = Reader::new(attach(&requests)).expect("it is empty");
    let answered = Writer::new(attach(&results)).expect("it is empty");
    let burst = Burst::start(listened, answered, Box::new(executor), poller).expect("a thread");
    let stop = burst.stopper();
    let patience = Limit::new(Some(Duration::from_secs(4)));
    while !input.is_empty() {
        let length = usize::from(next::<u8>(&mut input) & 31) * QUANTUM;
        let packet = bytes(&mut input, length);
        let packet = &packet[..packet.len() / QUANTUM * QUANTUM];
        if packet.is_empty() {
            burst.free_memory(next::<i8>(&mut input).into());
            continue;
        }
        writer.write_blocking(packet, &patience).expect("the burst takes what is written");
        reader.wait(2, &patience).expect("each packet has its answer");
        let mut result = vec![0; reader.available().expect("it is right") * QUANTUM];
        assert!(reader.read(&mut result).expect("it is there"));
        ResultPacket::parse(&result).expect("an answer is well formed");
    }
    if kind & 8 == 8 {
        stop();
    }
});
