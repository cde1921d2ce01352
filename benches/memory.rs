//! What memory costs: the states of a recurrent model in pools and in the driver, reads of client memory, and models
//! that hardly do more than read their input and write their output.
//!
//! `cargo bench --bench memory`

#[path = "../tests/common/mod.rs"]
mod common;

use common::conv::Convolutions;
use common::recurrent::Recurrence;
use common::{bytes_of, floats, memfd, request, Harness};
use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use nix::fcntl::{fcntl, FcntlArg, SealFlag};
use nnhal::memory::{Access, ClientSlice, Mapping};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;

/// 1,000 steps of a cell from state to state.
fn recurrent(criterion: &mut Criterion) {
    const STEPS: usize = 1000;
    let harness = Harness::new();
    let mut group = criterion.benchmark_group("recurrent_1000_steps");
    group.sample_size(10).throughput(Throughput::Elements(STEPS as u64));
    for units in [16, 128] {
        let in_pools = Recurrence::in_pools(&harness.connection, units);
        let in_buffers = Recurrence::in_buffers(&harness.connection, units);
        for recurrence in [&in_pools, &in_buffers] {
            recurrence.reset();
            recurrence.run(STEPS);
        }
        assert_eq!(in_pools.states(), in_buffers.states());
        for (name, recurrence) in [("pools", in_pools), ("device_buffers", in_buffers)] {
            group.bench_function(BenchmarkId::new(name, units), |bench| bench.iter(|| recurrence.run(STEPS)));
        }
    }
    group.finish();
}

/// A file that can never shrink.
fn sealed(bytes: &[u8]) -> File {
    let fd = nix::sys::memfd::memfd_create(c"sealed", nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING);
    let mut file = File::from(fd.expect("memfd"));
    file.write_all(bytes).expect("written");
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).expect("sealed");
    file
}

/// Reads of memory that can shrink, that cannot, and that is no client's: what the guard costs.
fn reads(criterion: &mut Criterion) {
    for (name, len) in [("4KiB", 4 << 10), ("256KiB", 256 << 10), ("1MiB", 1 << 20)] {
        let bytes = vec![1; len];
        let (shrinkable, sealed) = (memfd(&bytes), sealed(&bytes));
        let map = |file: &File| Mapping::new(file.as_fd(), 0, len, Access::Read).expect("mapped");
        let whole = |mapping| ClientSlice::whole(Arc::new(mapping));
        let mut group = criterion.benchmark_group(format!("read_{name}"));
        group.throughput(Throughput::Bytes(len as u64));
        let ours = whole(Mapping::anonymous(len).expect("mapped"));
        ours.write(&bytes).expect("written");
        let mut to = vec![0; len];
        for (name, slice) in
            [("shrinkable", whole(map(&shrinkable))), ("sealed", whole(map(&sealed))), ("unguarded", ours)]
        {
            group.bench_function(name, |bench| bench.iter(|| slice.read(&mut to).expect("read")));
        }
        for (name, file) in [("shrinkable_mapped_anew", &shrinkable), ("sealed_mapped_anew", &sealed)] {
            group.bench_function(name, |bench| {
                bench.iter(|| whole(map(file)).read(&mut to).expect("read"));
            });
        }
        // What is small is not mapped then.
        let once = || Mapping::for_one_use(shrinkable.as_fd(), 0, len, Access::Read).expect("opened");
        group.bench_function("shrinkable_read_once", |bench| {
            bench.iter(|| whole(once()).read(&mut to).expect("read"));
        });
        group.finish();
    }
}

/// A convolution over a large image, which lies in pools of the client.
fn images(criterion: &mut Criterion) {
    let harness = Harness::new();
    let mut group = criterion.benchmark_group("convolution");
    for (channels, window) in [(3, 3), (16, 1), (64, 1)] {
        let images = Convolutions { side: 512, channels, window, ..Default::default() };
        let (model, image) = (harness.prepare(&images.model()), images.image(0));
        let (request, output) = request(&floats(&image), images.bytes());
        let run = || model.executeSynchronously(&request, false, -1, -1).expect("executed");
        run();
        assert!(bytes_of(&output) == Convolutions::result(&image));
        group.throughput(Throughput::Bytes(2 * images.bytes() as u64));
        let name = format!("512x512x{channels}_window_{window}");
        group.bench_function(name, |bench| bench.iter(run));
    }
    group.finish();
}

criterion_group!(memory, recurrent, reads, images);
criterion_main!(memory);
