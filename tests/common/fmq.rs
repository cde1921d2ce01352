//! A client of bursts over fast message queues.

use super::*;
use binder::SIBinder;
use nnhal::client::controller::{Channels, Controller};
use nnhal::fmq::codec::{Argument, RequestPacket, ResultPacket};
use nnhal::fmq::{Descriptor, Limit};
use std::sync::Arc;

/// A client's memories: slot 0 for inputs, 1 for outputs; and what was asked for.
pub struct Memories {
    pub files: [File; 2],
    pub asked: Mutex<Vec<Vec<i32>>>,
}

pub struct Callback(pub Arc<Memories>);
impl Interface for Callback {}
impl IFmqBurstCallback for Callback {
    fn getMemories(&self, slots: &[i32]) -> BinderResult<Vec<Memory>> {
        self.0.asked.lock().expect("no panic while held").push(slots.to_vec());
        Ok(slots.iter().map(|&slot| ashmem(&self.0.files[slot as usize], 12)).collect())
    }
}

/// The extension object, asked for as a client over RPC has to.
pub fn extension(model: &Strong<dyn IPreparedModel>) -> Strong<dyn IFmqBurst> {
    let binder = model.as_binder();
    let proxy = binder.as_remote().expect("a proxy");
    let question = proxy.prepare_transact(true).expect("a parcel");
    let answer = proxy.submit_transact(binder::EXTENSION_TRANSACTION, &question, 0).expect("an answer");
    let extension: Option<SIBinder> = answer.expect("a reply").read().expect("a binder");
    extension.expect("an extension").into_interface().expect("an IFmqBurst")
}

pub struct Burst {
    pub controller: Controller,
    pub memories: Arc<Memories>,
    pub context: Strong<dyn IFmqBurstContext>,
    _callback: Strong<dyn IFmqBurstCallback>,
}

pub fn configure(
    extension: &Strong<dyn IFmqBurst>,
    callback: &Strong<dyn IFmqBurstCallback>,
    requests: &Descriptor,
    results: &Descriptor,
) -> BinderResult<Strong<dyn IFmqBurstContext>> {
    let (requests, results) = (requests.to_aidl().expect("sent"), results.to_aidl().expect("sent"));
    extension.configureExecutionBurst(callback, &requests, &results)
}

impl Burst {
    pub fn open(extension: &Strong<dyn IFmqBurst>) -> Self {
        Burst::over(extension, Duration::ZERO, |_| {})
    }

    /// A burst over queues. The driver gets their descriptors with a `change`; results are polled for as long as `polling`.
    pub fn over(extension: &Strong<dyn IFmqBurst>, polling: Duration, change: fn(&mut Descriptor)) -> Self {
        let files = [memfd(&floats(&[1.5, -0.5, 3.0])), memfd(&[0xee; 12])];
        let memories = Arc::new(Memories { files, asked: Mutex::default() });
        let callback = BnFmqBurstCallback::new_binder(Callback(memories.clone()));
        let channels = Channels::create().expect("channels");
        let controller = Controller::new(&channels, polling).expect("a controller");
        let (mut requests, mut results) = (channels.requests.descriptor(), channels.results.descriptor());
        [&mut requests, &mut results].into_iter().for_each(change);
        let context = configure(extension, &callback, &requests, &results).expect("a burst");
        Burst { controller, memories, context, _callback: callback }
    }

    pub fn run(&mut self, packet: &RequestPacket) -> ResultPacket {
        self.controller.execute(packet, &Limit::new(Some(PATIENCE))).expect("a result")
    }
}

pub fn packet() -> RequestPacket {
    let argument = |pool| Argument { pool, length: 12, ..Default::default() };
    RequestPacket { inputs: vec![argument(0)], outputs: vec![argument(1)], slots: vec![0, 1], measure: false }
}
