//! A request as it comes from a client, for one of a few prepared models: checked, bound and run.
//!
//! An input begins with what a parcel of bytes cannot hold: which model, whether the execution is fenced, and pools.

#![no_main]

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use nnhal::backend::{Arguments, Backend, CompileOptions, Control, Executable, Memory};
use nnhal::memory::on_account_of;
use nnhal::model::{Model, Request, RequestPool};
use nnhal_fuzz::{backend, making, next, pools, soon};
use std::sync::{Arc, LazyLock};

static PREPARED: LazyLock<Vec<Arc<dyn Executable>>> = LazyLock::new(|| {
    let compile = |model| {
        let model = Model::new(&model).expect("it is valid");
        backend().compile(&model, &CompileOptions::default(), &Control::default()).expect("it is taken")
    };
    making::small_models().into_iter().map(|(_, model)| compile(model)).collect()
});

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let (kind, more) = (next::<u8>(&mut input), pools(&mut input));
    let executable = &PREPARED[usize::from(kind >> 2) % PREPARED.len()];
    let (fenced, reused) = (kind & 1 == 1, kind & 2 == 2);
    let Ok(mut request) = binder::from_bytes::<nnhal::aidl::Request>(input.take_rest()) else { return };
    request.pools.extend(more.into_iter().map(nnhal::aidl::RequestMemoryPool::Pool));
    let interface = executable.interface();
    let (given, control) = ((&request.inputs, &request.outputs), Control::default());
    let Ok(pools) = RequestPool::decode(&request.pools, &control) else { return };
    let (inputs, outputs) = (&interface.inputs, &interface.outputs);
    let check =
        |pools: &[RequestPool]| Request::new(given.0, given.1, pools, inputs, outputs, fenced, &control);
    let Ok(checked) = check(&pools) else { return };
    // The same over memory that a burst has found already.
    let known: Vec<_> = pools
        .iter()
        .map(|pool| match pool {
            RequestPool::Memory(pool) => RequestPool::Known { size: pool.size(), is_image: pool.is_image() },
            RequestPool::Known { size, is_image } => RequestPool::Known { size: *size, is_image: *is_image },
            RequestPool::Buffer { token } => RequestPool::Buffer { token: *token },
        })
        .collect();
    let again = check(&known);
    assert_eq!(again.ok().as_ref(), Some(&checked));
    let memory = |pool: &RequestPool| match pool {
        RequestPool::Memory(pool) => pool.map().ok().map(Memory::Mapped),
        _ => None,
    };
    let arguments = Arguments { request: checked, pools: pools.iter().map(memory).collect(), reused };
    let _account = on_account_of(1);
    if let Ok(binding) = executable.clone().bind(arguments) {
        let _ = binding.run(&soon());
    }
});
