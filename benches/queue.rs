//! Fast message queues: how much goes through one, and how long a message takes there and back between two who sleep.
//!
//!     cargo bench --bench queue
//!
//! Both ends attach as two processes would, each with a mapping of its own; elements have the size of a burst's data.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use nnhal::fmq::{Limit, Queue, Reader, SharedQueue, Writer};
use std::time::{Duration, Instant};

/// Bytes of an element: a datum of the burst's protocol.
const ELEMENT: usize = 24;
const PATIENCE: Duration = Duration::from_secs(60);

/// The ends of a queue of `elements`, and the queue.
fn ends(elements: usize) -> (SharedQueue, Reader, Writer) {
    let shared = SharedQueue::create(elements, ELEMENT).expect("a queue");
    let attach = || Queue::attach(&shared.descriptor(), ELEMENT, elements).expect("attached");
    let (reader, writer) = (attach(), attach());
    (shared, Reader::new(reader).expect("a reader"), Writer::new(writer).expect("a writer"))
}

fn within() -> Limit<'static> {
    Limit::new(Some(PATIENCE))
}

/// A thread writes as fast as another reads.
fn stream(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue_stream");
    for batch in [1, 16, 256] {
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function(BenchmarkId::from_parameter(batch), |bench| {
            bench.iter_custom(|count| {
                let (_shared, mut reader, mut writer) = ends(1024);
                let began = Instant::now();
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        let bytes = vec![7; ELEMENT * batch];
                        (0..count).for_each(|_| writer.write_blocking(&bytes, &within()).expect("written"));
                    });
                    let mut bytes = vec![0; ELEMENT * batch];
                    (0..count).for_each(|_| reader.read_blocking(&mut bytes, &within()).expect("read"));
                });
                began.elapsed()
            });
        });
    }
    group.finish();
}

/// A message there, and one back.
fn round_trip(criterion: &mut Criterion) {
    criterion.bench_function("queue_round_trip", |bench| {
        bench.iter_custom(|count| {
            let (_there, mut there_in, mut there_out) = ends(16);
            let (_back, mut back_in, mut back_out) = ends(16);
            let mut bytes = [0; ELEMENT];
            let began = Instant::now();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let mut bytes = [0; ELEMENT];
                    for _ in 0..count {
                        there_in.read_blocking(&mut bytes, &within()).expect("read");
                        back_out.write_blocking(&bytes, &within()).expect("written");
                    }
                });
                for _ in 0..count {
                    there_out.write_blocking(&bytes, &within()).expect("written");
                    back_in.read_blocking(&mut bytes, &within()).expect("read");
                }
            });
            began.elapsed()
        });
    });
}

criterion_group!(queue, stream, round_trip);
criterion_main!(queue);
