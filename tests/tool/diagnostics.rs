//! What the tool prints of a driver that tells of itself, and of one that does not.

use crate::common::*;
use binder::{BinderResult, Interface, ParcelFileDescriptor, StatusCode, Strong};
use nnhal::aidl::*;
use nnhal::backend::cpu::CpuBackend;
use nnhal::backend::{Backend, BackendError, CompileOptions, Control, Executable, Info};
use nnhal::daemon::serve::UnixService;
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

    fn support(&self, model: &nnhal::model::Model) -> Vec<Result<(), String>> {
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

/// A driver of somebody else's, which takes nothing.
struct Foreign;

impl Interface for Foreign {}

fn unknown<T>() -> BinderResult<T> {
    Err(StatusCode::UnknownTransaction.into())
}

impl IDevice for Foreign {
    fn getSupportedOperations(&self, model: &Model) -> BinderResult<Vec<bool>> {
        Ok(vec![false; model.main.operations.len()])
    }

    fn getCapabilities(&self) -> BinderResult<Capabilities> {
        unknown()
    }

    fn getNumberOfCacheFilesNeeded(&self) -> BinderResult<NumberOfCacheFiles> {
        unknown()
    }

    fn getSupportedExtensions(&self) -> BinderResult<Vec<Extension>> {
        unknown()
    }

    fn getType(&self) -> BinderResult<DeviceType> {
        unknown()
    }

    fn getVersionString(&self) -> BinderResult<String> {
        unknown()
    }

    fn prepareModel(
        &self,
        _: &Model,
        _: ExecutionPreference,
        _: Priority,
        _: i64,
        _: &[ParcelFileDescriptor],
        _: &[ParcelFileDescriptor],
        _: &[u8],
        _: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        unknown()
    }

    fn prepareModelWithConfig(
        &self,
        _: &Model,
        _: &PrepareModelConfig,
        _: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        unknown()
    }

    fn prepareModelFromCache(
        &self,
        _: i64,
        _: &[ParcelFileDescriptor],
        _: &[ParcelFileDescriptor],
        _: &[u8],
        _: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        unknown()
    }

    fn allocate(
        &self,
        _: &BufferDesc,
        _: &[IPreparedModelParcel],
        _: &[BufferRole],
        _: &[BufferRole],
    ) -> BinderResult<DeviceBuffer> {
        unknown()
    }
}

#[test]
fn a_driver_that_tells_nothing_is_named_and_inspected_all_the_same() {
    let plain = BnDevice::new_binder(Foreign);
    let other = BnDevice::new_binder(Foreign);
    // A vendor's own extension, of another interface.
    other.as_binder().set_extension(&plain.as_binder()).expect("a local object");
    for device in [plain, other] {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("nn.sock");
        let _service = UnixService::start(&socket, &device, 0o600).expect("served");
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
