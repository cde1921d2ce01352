//! What the tool prints of a driver that tells of itself, and of one that does not.

use crate::common::*;
use binder::{BinderResult, Interface, ParcelFileDescriptor, Status, StatusCode, Strong};
use nnhal::aidl::*;
use nnhal::backend::cpu::CpuBackend;
use nnhal::backend::{
    Arguments, Artifact, Backend, BackendError, Binding, CompileOptions, Control, Executable, Info, Saved,
};
use nnhal::daemon::unix::UnixService;
use nnhal::scheduler::{CallTurns, Watcher};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/digits_int8.tflite");

fn nnhal(socket: &Path, arguments: &[&str]) -> Output {
    let service = format!("unix:{}", socket.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_nnhal"));
    command.args(["--service", &service]).args(arguments).env_remove("RUST_LOG");
    command.output().expect("it runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// What a driver has for its transport.
fn transport() -> (CallTurns, Arc<Watcher>) {
    (CallTurns::new(1), Arc::new(Watcher::new().expect("a thread")))
}

#[test]
fn the_state_of_a_driver_is_printed_as_text_and_json() {
    let harness = Harness::with_data(None);
    let model = harness.prepare(&floor_model(&[1, 3]));
    let (request, _output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    model.executeSynchronously(&request, false, -1, -1).expect("executed");
    let output = nnhal(harness.socket(), &["info", "--live"]);
    let found = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // In the driver's own order.
    assert!(found.starts_with("driver: nnhal-"), "{found}");
    assert!(found.contains("\n    prepared models: 1\n") && found.contains("\n  succeeded: 1\n"), "{found}");
    let output = nnhal(harness.socket(), &["info", "--live", "--json"]);
    assert_eq!(text(&output.stdout).lines().count(), 1);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["executions"]["succeeded"], 1);
}

/// A backend that takes nothing.
struct Choosy(CpuBackend);

impl Backend for Choosy {
    fn info(&self) -> Info {
        self.0.info()
    }

    fn support(&self, model: &nnhal::model::Model, _: &Control) -> Vec<Result<(), String>> {
        let reason = |i| format!("number {i} is not to its taste");
        (0..model.main.operations.len()).map(|i| Err(reason(i))).collect()
    }

    fn compile(
        &self,
        _: &nnhal::model::Model,
        _: &CompileOptions,
        _: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        Err(BackendError::Failed("it takes nothing".into()))
    }
}

/// The CPU, which tells nothing of what it compiles.
struct Reticent(CpuBackend);

struct Untold(Arc<dyn Executable>);

impl Backend for Reticent {
    fn info(&self) -> Info {
        self.0.info()
    }

    fn support(&self, model: &nnhal::model::Model, control: &Control) -> Vec<Result<(), String>> {
        self.0.support(model, control)
    }

    fn compile(
        &self,
        model: &nnhal::model::Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(Untold(self.0.compile(model, options, control)?)))
    }

    fn load(
        &self,
        saved: Saved,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        self.0.load(saved, options, control)
    }
}

impl Executable for Untold {
    fn interface(&self) -> &nnhal::backend::Interface {
        self.0.interface()
    }

    fn bind(self: Arc<Self>, arguments: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        self.0.clone().bind(arguments)
    }

    fn artifact(&self, control: &Control) -> Result<Option<Artifact>, BackendError> {
        self.0.artifact(control)
    }
}

#[test]
fn a_backend_that_does_not_describe_its_models_is_timed_all_the_same() {
    let backend = Arc::new(Reticent(CpuBackend::new(1).expect("threads")));
    let daemon = nnhal::daemon::embedded::start_with(backend, &Default::default()).expect("a driver");
    let output = nnhal(daemon.socket(), &["bench", MODEL, "--runs", "5", "--profile", "--json"]);
    let found = text(&output.stdout);
    assert!(found.contains("ran 5 times") && found.contains("\"median_ms\":"), "{found}");
    let why = "nnhal: --profile: the driver does not know what runs the model's operations\n";
    assert_eq!((text(&output.stderr), output.status.code()), (why, Some(1)));
}

#[test]
fn inspect_prints_the_drivers_reasons() {
    let backend = Arc::new(Choosy(CpuBackend::new(1).expect("threads")));
    let daemon = nnhal::daemon::embedded::start_with(backend, &Default::default()).expect("a driver");
    let output = nnhal(daemon.socket(), &["inspect", MODEL]);
    assert_eq!(output.status.code(), Some(1));
    let found = text(&output.stdout);
    assert!(found.contains("NOT TAKEN: number 0 is not to its taste"), "{found}");
    assert!(!found.contains("does not say why"), "{found}");
}

/// Somebody else's driver, which tells nothing: it takes all that the one behind it takes, or nothing.
struct Foreign(Option<Strong<dyn IDevice>>);

impl Interface for Foreign {}

impl Foreign {
    /// The driver behind it, for what a driver of that which takes nothing is never asked.
    fn inner(&self) -> Result<&Strong<dyn IDevice>, Status> {
        self.0.as_ref().ok_or_else(|| StatusCode::UnknownTransaction.into())
    }
}

impl IDevice for Foreign {
    fn getSupportedOperations(&self, model: &Model) -> BinderResult<Vec<bool>> {
        match &self.0 {
            Some(device) => device.getSupportedOperations(model),
            None => Ok(vec![false; model.main.operations.len()]),
        }
    }

    fn getCapabilities(&self) -> BinderResult<Capabilities> {
        self.inner()?.getCapabilities()
    }

    fn getNumberOfCacheFilesNeeded(&self) -> BinderResult<NumberOfCacheFiles> {
        self.inner()?.getNumberOfCacheFilesNeeded()
    }

    fn getSupportedExtensions(&self) -> BinderResult<Vec<Extension>> {
        self.inner()?.getSupportedExtensions()
    }

    fn getType(&self) -> BinderResult<DeviceType> {
        self.inner()?.getType()
    }

    fn getVersionString(&self) -> BinderResult<String> {
        self.inner()?.getVersionString()
    }

    fn prepareModel(
        &self,
        model: &Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline: i64,
        models: &[ParcelFileDescriptor],
        data: &[ParcelFileDescriptor],
        token: &[u8],
        callback: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        self.inner()?.prepareModel(model, preference, priority, deadline, models, data, token, callback)
    }

    fn prepareModelWithConfig(
        &self,
        model: &Model,
        config: &PrepareModelConfig,
        callback: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        self.inner()?.prepareModelWithConfig(model, config, callback)
    }

    fn prepareModelFromCache(
        &self,
        deadline: i64,
        models: &[ParcelFileDescriptor],
        data: &[ParcelFileDescriptor],
        token: &[u8],
        callback: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        self.inner()?.prepareModelFromCache(deadline, models, data, token, callback)
    }

    fn allocate(
        &self,
        desc: &BufferDesc,
        models: &[IPreparedModelParcel],
        inputs: &[BufferRole],
        outputs: &[BufferRole],
    ) -> BinderResult<DeviceBuffer> {
        self.inner()?.allocate(desc, models, inputs, outputs)
    }
}

#[test]
fn a_driver_that_does_not_tell_of_models_runs_them_and_who_asks_is_told_in_a_line() {
    let backend = CpuBackend::new(1).expect("threads");
    let inner = nnhal::service::Driver::builder(Arc::new(backend)).build().expect("a driver");
    let device = BnDevice::new_binder(Foreign(Some(inner.device.clone())));
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nn.sock");
    let _service = UnixService::start(&socket, &device, transport(), 0o600).expect("served");
    let why = format!(
        "the driver at unix:{} does not tell what becomes of a model: it has no extension vendor.nnhal.diagnostics of \
         version 2 or later",
        socket.display()
    );
    let file = dir.path().join("file");
    let file = file.to_str().expect("UTF-8");
    for (flag, command) in [
        ("--profile", vec!["bench", MODEL, "--profile"]),
        ("--trace", vec!["bench", MODEL, "--trace", file]),
        ("--trace", vec!["run", MODEL, "--trace", file]),
        ("--profile", vec!["inspect", MODEL, "--profile"]),
        ("--svg", vec!["inspect", MODEL, "--svg", file]),
    ] {
        let output = nnhal(&socket, &command);
        assert_eq!(text(&output.stderr), format!("nnhal: {flag}: {why}\n"));
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        assert!(!Path::new(file).exists(), "{command:?}");
    }
    let output = nnhal(&socket, &["inspect", MODEL, "--model-explorer", file]);
    let found = text(&output.stdout);
    assert!(output.status.success() && found.lines().last() == Some(&why), "{found}");
    assert!(found.contains(" CONV_2D (operator 0)") && !found.contains("[gemm"), "{found}");
    assert!(Path::new(file).exists(), "the graph needs no driver that tells");
}

#[test]
fn a_driver_in_another_process_is_profiled_as_one_in_this() {
    let harness = Harness::with_data(None);
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_string();
    let (svg, graph, trace) = (path("svg"), path("graph"), path("trace"));
    let succeed = |arguments: &[&str]| {
        let output = nnhal(harness.socket(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let out = succeed(&["bench", MODEL, "--runs", "10", "--profile", "--trace", &trace, "--json"]);
    let figures: serde_json::Value = serde_json::from_str(out.lines().last().expect("a line")).expect("JSON");
    let profile = &figures["profile"];
    assert_eq!((&profile["runs"], &profile["missed"]), (&10.into(), &0.into()));
    let rows = profile["operations"].as_array().expect("operations");
    assert!(
        rows.iter().any(|row| row["median_ms"].as_f64() > Some(0.0) && row["kernel"].is_string()),
        "{profile}"
    );
    let events = std::fs::read_to_string(&trace).expect("a trace");
    let events: serde_json::Value = serde_json::from_str(&events).expect("JSON");
    let events = events["traceEvents"].as_array().expect("events");
    assert_eq!(events.iter().filter(|event| event["cat"] == "run").count(), 10);
    let out = succeed(&["inspect", MODEL, "--profile", "--svg", &svg, "--model-explorer", &graph]);
    assert!(out.contains("client memory, otherwise arena ") && out.contains("by kernel:"), "{out}");
    assert!(std::fs::read_to_string(&svg).expect("a drawing").starts_with("<svg"));
    assert!(std::fs::read_to_string(&graph).expect("a graph").contains("time (ms)"));
    succeed(&["run", MODEL, "--runs", "3", "--trace", &trace]);
    assert!(std::fs::read_to_string(&trace).expect("a trace").contains("\"cat\":\"operation\""));
}

#[test]
fn a_driver_that_tells_nothing_is_named_and_inspected_all_the_same() {
    let plain = BnDevice::new_binder(Foreign(None));
    let other = BnDevice::new_binder(Foreign(None));
    // A vendor's own extension, of another interface.
    other.as_binder().set_extension(&plain.as_binder()).expect("a local object");
    for device in [plain, other] {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("nn.sock");
        let _service = UnixService::start(&socket, &device, transport(), 0o600).expect("served");
        for arguments in [&["info", "--live"][..], &["info", "--live", "--json"]] {
            let output = nnhal(&socket, arguments);
            assert_eq!(output.status.code(), Some(2));
            let why = text(&output.stderr);
            assert!(
                why.starts_with("nnhal: the driver at unix:") && why.contains("does not tell its state"),
                "{why}"
            );
            assert_eq!((why.lines().count(), text(&output.stdout)), (1, ""));
        }
        let output = nnhal(&socket, &["inspect", MODEL]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stdout).contains("NOT TAKEN: the driver does not say why"));
    }
}
