//! Models compiled and executed over binder.

mod common;

use common::*;
use nnhal::aidl::*;

#[test]
fn a_model_runs_end_to_end() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1, 3]));
    let (request, output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    let result = model.executeSynchronously(&request, false, -1, -1).expect("executed");
    assert!(result.outputSufficientSize);
    assert_eq!(result.outputShapes, [OutputShape { dimensions: vec![1, 3], isSufficient: true }]);
    assert_eq!(result.timing, Timing { timeOnDeviceNs: -1, timeInDriverNs: -1 });
    assert_eq!(bytes_of(&output), floats(&[1.0, -1.0, 3.0]));

    let config = ExecutionConfig { measureTiming: true, loopTimeoutDurationNs: -1, ..Default::default() };
    let result = model.executeSynchronouslyWithConfig(&request, &config, -1).expect("executed");
    let Timing { timeOnDeviceNs: device, timeInDriverNs: driver } = result.timing;
    assert!(0 < device && device <= driver, "{device} {driver}");
}
