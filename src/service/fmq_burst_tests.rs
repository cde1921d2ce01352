//! What a burst's thread does once its burst was stopped.

use super::*;
use crate::aidl;
use crate::backend::cpu::CpuBackend;
use crate::backend::{Arguments, BackendError, Binding, CompileOptions, Executable};
use crate::compiler::{Compiled, Unsaved};
use crate::service::Driver;

/// So many arguments are checked by a turn.
const MANY: usize = 4000;

/// A model of no inputs or outputs, which nobody comes to bind.
struct Nothing(backend::Interface);

impl Executable for Nothing {
    fn interface(&self) -> &backend::Interface {
        &self.0
    }

    fn bind(self: Arc<Self>, _: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        unreachable!("no request fits it")
    }
}

impl IFmqBurstCallback for Nothing {
    fn getMemories(&self, _: &[i32]) -> BinderResult<Vec<aidl::Memory>> {
        Ok(Vec::new())
    }
}

impl Interface for Nothing {}

fn nothing() -> Nothing {
    Nothing(backend::Interface { inputs: Vec::new(), outputs: Vec::new(), may_loop: false })
}

#[test]
fn a_burst_that_was_stopped_waits_for_no_turn_to_check_a_request_by() {
    let driver = Driver::builder(Arc::new(CpuBackend::new(1).unwrap())).build().unwrap();
    let (core, client) = (driver.core(), 1);
    let compiled = Compiled {
        executable: Arc::new(nothing()),
        options: CompileOptions::default(),
        unsaved: Unsaved::new(client, None, None),
    };
    let place = core.quotas.model(client).unwrap();
    let prepared = Arc::new(Prepared::new(core.clone(), compiled, core.lives.of(0), place, 0));
    let places = [core.quotas.fmq_burst(client), core.quotas.mappings(client, 1)];
    let burst = Client {
        callback: ipc::object!(BnFmqBurstCallback, nothing()),
        terms: Terms::new(false, -1).unwrap(),
        last: Mutex::default(),
        _places: places.map(Result::unwrap),
        _open: prepared.counts.burst(),
        prepared,
    };
    let inputs = vec![codec::Argument::default(); MANY];
    let request = RequestPacket { inputs, outputs: Vec::new(), slots: Vec::new(), measure: false };
    let stop = Arc::<Stop>::default();
    let run = || burst.run(&request, &[], &stop);
    assert!(matches!(run(), Err(ServiceError::Argument(_))), "it has too many inputs");
    stop.set();
    assert!(matches!(run(), Err(ServiceError::Backend(BackendError::Cancelled))));
}
