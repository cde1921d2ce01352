//! What targets have in common: an input read piece by piece, pools of a client's, models that run for a moment.
//!
//! Nothing here may panic on any input: a find must be a fault of the driver's.

use libfuzzer_sys::arbitrary::Unstructured;
use nix::sys::memfd::{memfd_create, MFdFlags};
use nnhal::aidl::{Ashmem, HardwareBuffer, MappableFile, Memory};
use nnhal::backend::cpu::CpuBackend;
use nnhal::backend::{boottime_ns, Arguments, Backend, CompileOptions, Control, Executable, Interface};
use nnhal::memory::{on_account_of, Mapping};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, OnceLock};

pub mod making;

/// The backend of all targets, with one thread.
pub fn backend() -> &'static CpuBackend {
    static BACKEND: LazyLock<CpuBackend> =
        LazyLock::new(|| CpuBackend::new(1).expect("no threads are needed"));
    &BACKEND
}

/// What takes longer is not looked for here.
pub fn soon() -> Control {
    Control { deadline_ns: Some(boottime_ns() + 20_000_000), ..Control::default() }
}

/// The next number, 0 where the input has ended.
pub fn next<'a, T: libfuzzer_sys::arbitrary::Arbitrary<'a> + Default>(input: &mut Unstructured<'a>) -> T {
    input.arbitrary().unwrap_or_default()
}

/// The next bytes, fewer where the input has ended.
pub fn bytes<'a>(input: &mut Unstructured<'a>, count: usize) -> &'a [u8] {
    input.bytes(count.min(input.len())).unwrap_or_default()
}

/// Bytes of each file that [`file`] gives.
pub const FILE: i64 = 4096;

/// Shared memory of [`FILE`] bytes.
pub fn shared_memory() -> File {
    let file = File::from(memfd_create(c"fuzz", MFdFlags::MFD_CLOEXEC).expect("shared memory"));
    file.set_len(FILE as u64).expect("room");
    file
}

/// A descriptor as a client may send it: shared memory, or a file of another kind.
pub fn file(kind: u8) -> binder::ParcelFileDescriptor {
    static FILES: OnceLock<[File; 8]> = OnceLock::new();
    let files = FILES.get_or_init(|| {
        let open = |path| File::open(path).expect("every Linux has it");
        let short = shared_memory();
        short.set_len(64).expect("room");
        let own = open("/proc/self/exe");
        let [null, numbers, directory] = ["/dev/null", "/proc/self/stat", "/"].map(open);
        [shared_memory(), shared_memory(), shared_memory(), short, null, numbers, directory, own]
    });
    binder::ParcelFileDescriptor::new(
        files[usize::from(kind) % files.len()].try_clone().expect("descriptors"),
    )
}

/// A pool as a client describes it.
pub fn pool(input: &mut Unstructured) -> Memory {
    let (kind, size): (u8, i64) = (next(input), next(input));
    let fd = (kind & 64 == 0).then(|| file(kind >> 2));
    match kind & 3 {
        0 | 1 => Memory::Ashmem(Ashmem { fd, size }),
        2 => Memory::MappableFile(MappableFile { fd, length: size, prot: next(input), offset: next(input) }),
        _ => {
            let mut buffer = HardwareBuffer::default();
            buffer.description.width = size as i32;
            buffer.description.height = next::<u8>(input).into();
            buffer.description.layers = next::<u8>(input).into();
            buffer.description.format.0 = next::<u8>(input).into();
            buffer.handle.fds.extend(fd);
            Memory::HardwareBuffer(buffer)
        }
    }
}

/// Up to three pools: how many the input's next byte says.
pub fn pools(input: &mut Unstructured) -> Vec<Memory> {
    let count = next::<u8>(input) & 3;
    (0..count).map(|_| pool(input)).collect()
}

/// Largest inputs and outputs, together, of a model that is run.
const MOST_BYTES: usize = 1 << 20;

/// Runs a model for a moment, over inputs that say little; not one whose inputs are large, or have no known size.
pub fn run(executable: Arc<dyn Executable>) {
    let Interface { inputs, outputs, .. } = executable.interface();
    let sizes: Option<Vec<usize>> =
        inputs.iter().map(|info| info.byte_size().filter(|&size| size > 0)).collect();
    let Some(sizes) =
        sizes.filter(|sizes| sizes.iter().fold(0, |a: usize, &b| a.saturating_add(b)) < MOST_BYTES)
    else {
        return;
    };
    let memory = |size: usize, filled: bool| {
        let mapping = Arc::new(Mapping::anonymous(size).ok()?);
        if filled {
            let pattern: Vec<u8> = (0..size).map(|i| (i * 37 % 251) as u8).collect();
            nnhal::memory::ClientSlice::whole(mapping.clone()).write(&pattern).ok()?;
        }
        Some(nnhal::backend::Memory::Mapped(mapping))
    };
    let given = inputs.iter().zip(&sizes).map(|(info, &size)| Some((memory(size, true)?, info.dims.clone())));
    // Where the model does not know its size the output gets some: it may well be too small.
    let room =
        |info: &nnhal::tensor::TensorInfo| info.byte_size().filter(|&s| s > 0).unwrap_or(256).min(MOST_BYTES);
    let wanted = outputs.iter().map(|info| Some((memory(room(info), false)?, info.dims.clone())));
    let arguments = Arguments::in_own_memories(given.collect(), wanted.collect());
    let _account = on_account_of(1);
    if let Ok(binding) = executable.bind(arguments) {
        let _ = binding.run(&soon());
    }
}

/// What the model bytes of every artifact of this machine begin with.
pub fn artifact_start() -> &'static [u8] {
    static START: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let (_, model) = making::small_models().remove(0);
        let model = nnhal::model::Model::new(&model).expect("it is valid");
        let executable = backend().compile(&model, &CompileOptions::default(), &Control::default());
        let mut bytes = executable
            .expect("it is taken")
            .artifact(&Control::default())
            .expect("there is memory")
            .expect("it can be saved")
            .models
            .remove(0);
        let (length, _) = bytes.split_first_chunk().expect("it has a text");
        bytes.truncate(4 + u32::from_le_bytes(*length) as usize);
        bytes
    });
    &START
}

/// An empty directory, the same each time.
pub fn scratch_directory() -> PathBuf {
    let directory = std::env::temp_dir().join(format!("fuzz-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir(&directory).expect("a directory");
    directory
}
