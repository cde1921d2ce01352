//! Clients that close their connections amid a call, and live: over a socket their work stops as if they had died.

use crate::common::loops::loop_model;
use crate::common::status::{connect, soon};
use crate::common::*;
use binder::{ParcelFileDescriptor, Strong};
use nnhal::aidl::*;

/// Nanoseconds that a loop may go on for: the longest that a client may ask for.
const LONGEST: i64 = 15_000_000_000;

type Execute = fn(&Strong<dyn IPreparedModel>, &Request);

/// Ways to wait for an execution within a call.
const WAYS: [(&str, Execute); 4] = [
    ("executeSynchronously", |model, request| {
        drop(model.executeSynchronously(request, false, -1, LONGEST));
    }),
    ("executeFenced", |model, request| {
        const NO_FENCES: &[ParcelFileDescriptor] = &[];
        drop(model.executeFenced(request, NO_FENCES, false, -1, LONGEST, -1));
    }),
    ("a burst", |model, request| {
        let burst = model.configureExecutionBurst().expect("a burst");
        drop(burst.executeSynchronously(request, &[0, 1], false, -1, LONGEST));
    }),
    ("a reusable execution", |model, request| {
        let config = ExecutionConfig { loopTimeoutDurationNs: LONGEST, ..Default::default() };
        let execution = model.createReusableExecution(request, &config).expect("created");
        drop(execution.executeSynchronously(-1));
    }),
];

#[test]
fn an_execution_stops_when_its_connection_is_closed() {
    let harness = Harness::with_data(None);
    let teller = connect(&harness);
    for (done, (way, execute)) in WAYS.into_iter().enumerate() {
        let connection = harness.connect();
        let model = connection.prepare(&loop_model());
        let (mut request, _output) = request(&[&[1, 0, 0, 0][..], &floats(&[1.5])].concat(), 4);
        request.inputs = vec![argument(0, 0, 1), argument(0, 4, 4)];
        std::thread::scope(|scope| {
            scope.spawn(|| execute(&model, &request));
            soon(&teller, way, |status| status["executions"]["under_way"] == 1);
            connection.close();
        });
        // A loop that ran to its end would have missed it. What fails is counted a moment after it has ended.
        let failed = serde_json::json!({"GENERAL_FAILURE": done + 1});
        soon(&teller, way, |status| {
            status["executions"]["under_way"] == 0 && status["errors"]["counts"] == failed
        });
    }
}
