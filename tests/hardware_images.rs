//! Hardware buffers that are no BLOBs, as arguments of executions; alone in its process, which has a libnativewindow of the
//! tests' own.

mod common;

use binder::Strong;
use common::conv::Convolutions;
use common::domains::{model_of, tensor, Device, FAILURE, INVALID};
use common::fences::*;
use common::images::{driver, Image, UNTOUCHED};
use common::native_window::{handle, locks_of, set_busy, Fault, DEVICE};
use common::process::wait_until;
use common::*;
use nnhal::aidl::*;
use nnhal::client::controller::{Channels, Controller};
use nnhal::fmq::codec::{Argument, RequestPacket};
use nnhal::fmq::Limit;
use nnhal::scheduler::limits::BUSY;
use std::os::unix::fs::FileExt;

fn whole(pool: i32) -> RequestArgument {
    argument(pool, 0, 0)
}

/// A request from one image to another.
fn request_of(input: &Image, output: &Image) -> Request {
    Request { inputs: vec![whole(0)], outputs: vec![whole(1)], pools: vec![input.pool(), output.pool()] }
}

fn config() -> ExecutionConfig {
    ExecutionConfig { loopTimeoutDurationNs: -1, ..Default::default() }
}

/// Executes in every way but over queues, and has `check` look after each.
fn in_every_way(model: &Strong<dyn IPreparedModel>, request: &Request, check: &dyn Fn(&str)) {
    model.executeSynchronously(request, false, -1, -1).expect("executed");
    check("sync");
    let fenced = model.executeFenced(request, NO_FENCES, false, -1, -1, -1).expect("launched");
    assert_eq!((wait(&fenced, PATIENCE), info(&fenced).0), (Some(true), ErrorStatus::NONE));
    check("fenced");
    let burst = model.configureExecutionBurst().expect("a burst");
    let count = request.pools.len() as i64;
    for tokens in [vec![-1; count as usize], (0..count).collect(), (0..count).collect()] {
        burst.executeSynchronously(request, &tokens, false, -1, -1).expect("executed");
        check("burst");
    }
    let reusable = model.createReusableExecution(request, &config()).expect("created");
    for _ in 0..2 {
        reusable.executeSynchronously(-1).expect("executed");
        check("reusable");
        let fenced = reusable.executeFenced(NO_FENCES, -1, -1).expect("launched");
        assert_eq!(wait(&fenced, PATIENCE), Some(true));
        check("reusable, fenced");
    }
}

#[test]
fn images_are_arguments_in_every_way_to_execute() {
    let driver = driver();
    for window in [1, 3] {
        let images = Convolutions { window, ..Default::default() };
        let model = driver.prepare(&images.model());
        let (width, height) = ((images.side * images.channels) as usize, images.side as usize);
        let len = 4 * width;
        for (given, taken) in [(len, len), (len + 4, len), (len, len + 32), (len + 32, 4096)] {
            let pixels = images.image(given + taken);
            let input = Image::floats(width, height, given).with(&floats(&pixels));
            let output = Image::floats(width, height, taken);
            let check = |way: &str| {
                output.assert_holds(&Convolutions::result(&pixels), &format!("{way}, {given} to {taken}"));
                input.assert_holds(&floats(&pixels), way);
                output.fill(&vec![UNTOUCHED; images.bytes()]);
            };
            in_every_way(&model, &request_of(&input, &output), &check);
            wait_until("it is let go of", || locks_of(&input.file).is_none());
        }
    }
}

/// Has one test at a time make the device busy; one that fails leaves it idle.
struct TheDevice {
    _alone: std::sync::MutexGuard<'static, ()>,
}

fn the_device() -> TheDevice {
    static OF_ONE_TEST: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TheDevice { _alone: OF_ONE_TEST.lock().unwrap_or_else(std::sync::PoisonError::into_inner) }
}

impl Drop for TheDevice {
    fn drop(&mut self) {
        set_busy(false);
    }
}

/// A device may be busy with a buffer for as long as it likes: all turns at computing are there for others meanwhile.
#[test]
fn who_waits_for_a_busy_device_has_no_turn() {
    let (_device, driver) = (the_device(), driver());
    let images = Convolutions::default();
    let pixels = images.image(1);
    let (width, height) = ((images.side * images.channels) as usize, images.side as usize);
    // Each over a connection of its own, which has few calls at once.
    let clients: Vec<_> = (0..4).map(|_| driver.connect()).collect();
    let models: Vec<_> = clients.iter().map(|client| client.prepare(&images.model())).collect();
    // One more than have a turn at once.
    let count = 3;
    for fenced in [false, true] {
        set_busy(true);
        let outputs: Vec<_> = (0..count).map(|_| Image::floats(width, height, 4 * width)).collect();
        let busy: Vec<_> = outputs
            .iter()
            .zip(&models)
            .map(|(output, model)| {
                let mut input = Image::floats(width, height, 4 * width).with(&floats(&pixels));
                input.fault = Fault::IsBusy;
                let (request, model) = (request_of(&input, output), model.clone());
                let execute = move || match fenced {
                    true => {
                        let fenced = model.executeFenced(&request, NO_FENCES, false, -1, -1, -1);
                        assert_eq!(wait(&fenced.expect("launched"), PATIENCE), Some(true));
                    }
                    false => drop(model.executeSynchronously(&request, false, -1, -1).expect("executed")),
                };
                std::thread::spawn(execute)
            })
            .collect();
        wait_until("all wait for the device", || DEVICE.lock().unwrap().waiting == count);
        let (told, done) = std::sync::mpsc::channel();
        let (plain, result) = request(&floats(&pixels), images.bytes());
        let model = models[count].clone();
        let other = std::thread::spawn(move || {
            let executed = model.executeSynchronously(&plain, false, -1, -1);
            told.send(executed.is_ok()).expect("somebody listens");
        });
        let served = done.recv_timeout(PATIENCE / 4);
        set_busy(false);
        assert_eq!(served, Ok(true), "fenced: {fenced}");
        other.join().expect("no panic");
        assert!(bytes_of(&result) == Convolutions::result(&pixels));
        for (busy, output) in busy.into_iter().zip(outputs) {
            busy.join().expect("no panic");
            output.assert_holds(&Convolutions::result(&pixels), "afterwards");
        }
    }
}

/// Each has a thread of the driver's.
#[test]
fn so_many_submitted_executions_of_a_client_wait_for_a_busy_device_and_no_more() {
    if std::env::var(BACKEND).as_deref() == Ok("asynchronous") {
        return eprintln!("skipped: this backend has a thread for whatever is submitted, and no such limit");
    }
    let (_device, driver) = (the_device(), driver());
    let images = Convolutions::default();
    let (model, pixels) = (driver.prepare(&images.model()), images.image(1));
    let (width, height) = ((images.side * images.channels) as usize, images.side as usize);
    let image = || Image::floats(width, height, 4 * width);
    let launch = |output: &Image| {
        let mut input = image().with(&floats(&pixels));
        input.fault = Fault::IsBusy;
        let launched = model.executeFenced(&request_of(&input, output), NO_FENCES, false, -1, -1, -1);
        launched.expect("launched")
    };
    let most = BUSY.quota().per_client() as usize;
    for _ in 0..2 {
        set_busy(true);
        let outputs: Vec<_> = (0..most).map(|_| image()).collect();
        let launched: Vec<_> = outputs.iter().map(launch).collect();
        wait_until("all wait for the device", || DEVICE.lock().unwrap().waiting == most);
        let refused = launch(&image());
        assert_eq!(wait(&refused, PATIENCE), Some(false));
        assert_eq!(info(&refused).0, ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT);
        // What waits for no device takes no such place.
        let (plain, result) = request(&floats(&pixels), images.bytes());
        let other = model.executeFenced(&plain, NO_FENCES, false, -1, -1, -1).expect("launched");
        assert_eq!(wait(&other, PATIENCE), Some(true));
        assert!(bytes_of(&result) == Convolutions::result(&pixels));
        set_busy(false);
        for (launched, output) in launched.iter().zip(outputs) {
            assert_eq!(wait(launched, PATIENCE), Some(true));
            output.assert_holds(&Convolutions::result(&pixels), "afterwards");
        }
    }
}

/// A BLOB of so many zeroes.
fn blob(bytes: usize, fault: Fault) -> Memory {
    let description = HardwareBufferDescription {
        width: bytes as i32,
        height: 1,
        layers: 1,
        format: PixelFormat::BLOB,
        usage: BufferUsage(0x33),
        stride: bytes as i32,
    };
    let fds = descriptor(&memfd(&vec![0; bytes])).into_iter().collect();
    let handle = NativeHandle { fds, ints: handle(0, fault) };
    Memory::HardwareBuffer(HardwareBuffer { description, handle })
}

/// A device may be busy with constants, too; and where they lie in a hardware buffer, one thread at a time reads them.
#[test]
fn constants_that_a_device_is_busy_with_are_waited_for_without_a_turn() {
    let (_device, driver) = (the_device(), driver());
    let images = Convolutions::default();
    let (model, pixels) = (driver.prepare(&images.model()), images.image(1));
    let clients = [driver.connect(), driver.connect()];
    // Constants of the second size are summed up beside their compilation.
    for elements in [1 << 14, 1 << 17] {
        set_busy(true);
        let sum = || sum_model(elements, blob(4 * elements as usize, Fault::IsBusy));
        std::thread::scope(|scope| {
            let prepared: Vec<_> =
                clients.iter().map(|client| scope.spawn(move || client.prepare(&sum()))).collect();
            wait_until("both wait for the device", || DEVICE.lock().unwrap().waiting == clients.len());
            let (told, done) = std::sync::mpsc::channel();
            let (plain, result) = request(&floats(&pixels), images.bytes());
            let model = &model;
            scope.spawn(move || {
                let executed = model.executeSynchronously(&plain, false, -1, -1);
                told.send(executed.is_ok()).expect("somebody listens");
            });
            let served = done.recv_timeout(PATIENCE / 4);
            set_busy(false);
            assert_eq!(served, Ok(true), "{elements} elements");
            assert!(bytes_of(&result) == Convolutions::result(&pixels));
            for prepared in prepared {
                let values = floats(&vec![0.5; elements as usize]);
                let (request, result) = request(&values, values.len());
                let sum = prepared.join().expect("prepared");
                sum.executeSynchronously(&request, false, -1, -1).expect("executed");
                assert!(bytes_of(&result) == values);
            }
        });
    }
}

#[test]
fn a_pixel_is_as_many_bytes_as_its_format_says() {
    let driver = driver();
    use PixelFormat as F;
    for (format, pixel) in [
        (F::R_8, 1),
        (F::RGB_565, 2),
        (F::R_16_UINT, 2),
        (F::RGB_888, 3),
        (F::RGBA_8888, 4),
        (F::RGBX_8888, 4),
        (F::BGRA_8888, 4),
        (F::RGBA_1010102, 4),
        (F::RG_1616_UINT, 4),
        (F::RGBA_FP16, 8),
        (F::RGBA_10101010, 8),
    ] {
        let dims = [5, 7, pixel as i32];
        let bytes = tensor(OperandType::TENSOR_QUANT8_ASYMM, &dims, OperandLifeTime::TEMPORARY_VARIABLE);
        let model = driver.prepare(&model_of(&[bytes]));
        // 64 is no whole number of pixels of 3 bytes.
        for row in [7 * pixel, 64] {
            let image = || Image::new(format, pixel, [7, 5], row);
            let pixels: Vec<u8> = (0..35 * pixel).map(|i| (i * 7) as u8).collect();
            let (input, output) = (image().with(&pixels), image());
            model.executeSynchronously(&request_of(&input, &output), false, -1, -1).expect("executed");
            let zero = 3;
            let relu: Vec<u8> = pixels.iter().map(|&byte| byte.max(zero)).collect();
            output.assert_holds(&relu, &format!("{format:?}"));
        }
    }
}

#[test]
fn an_image_serves_several_inputs_beside_other_memory() {
    let driver = driver();
    let images = Convolutions { count: 3, ..Default::default() };
    let (model, len, pixels) = (driver.prepare(&images.model()), images.bytes(), images.image(1));
    let (width, height) = ((images.side * images.channels) as usize, images.side as usize);
    for row in [4 * width, 4 * width + 64] {
        let (image, other) = (Image::floats(width, height, row), images.image(2));
        image.fill(&floats(&pixels));
        let (inputs, outputs) = (memfd(&floats(&other)), memfd(&vec![UNTOUCHED; 2 * len]));
        let last = Image::floats(width, height, row);
        let request = Request {
            inputs: vec![whole(0), argument(1, 0, len as i64), whole(0)],
            outputs: vec![argument(2, 0, len as i64), argument(2, len as i64, len as i64), whole(3)],
            pools: vec![
                image.pool(),
                RequestMemoryPool::Pool(ashmem(&inputs, len as i64)),
                RequestMemoryPool::Pool(ashmem(&outputs, 2 * len as i64)),
                last.pool(),
            ],
        };
        let results = [Convolutions::result(&pixels), Convolutions::result(&other)].concat();
        in_every_way(&model, &request, &|way| {
            assert!(bytes_of(&outputs) == results, "{way}");
            last.assert_holds(&Convolutions::result(&pixels), way);
        });
    }
}

struct Memories([Image; 2]);
impl binder::Interface for Memories {}
impl IFmqBurstCallback for Memories {
    fn getMemories(&self, slots: &[i32]) -> binder::BinderResult<Vec<Memory>> {
        Ok(slots.iter().map(|&slot| self.0[slot as usize].memory()).collect())
    }
}

#[test]
fn images_come_over_queues() {
    let driver = driver();
    let model = driver.prepare(&floor_model(&[2, 3]));
    let input = Image::floats(3, 2, 16).with(&floats(&[0.5, 1.5, 2.5, -0.5, 4.0, 5.5]));
    let output = Image::floats(3, 2, 20);
    let same_output = Image { file: output.file.try_clone().expect("dup"), ..Image::floats(3, 2, 20) };
    let callback = BnFmqBurstCallback::new_binder(Memories([input, same_output]));
    let channels = Channels::create().expect("channels");
    let mut controller = Controller::new(&channels, std::time::Duration::ZERO).expect("a controller");
    let (requests, results) = (channels.requests.descriptor(), channels.results.descriptor());
    let extension = common::fmq::extension(&model);
    let _burst = common::fmq::configure(&extension, &callback, &requests, &results).expect("a burst");
    let argument = |pool, length| Argument { pool, length, ..Default::default() };
    for (length, expected) in [(0, ErrorStatus::NONE), (24, INVALID), (0, ErrorStatus::NONE)] {
        let (inputs, outputs) = (vec![argument(0, length)], vec![argument(1, 0)]);
        let packet = RequestPacket { inputs, outputs, slots: vec![0, 1], measure: false };
        let result = controller.execute(&packet, &Limit::new(Some(PATIENCE))).expect("a result");
        assert_eq!(ErrorStatus(result.status), expected);
    }
    output.assert_holds(&floats(&[0.0, 1.0, 2.0, -1.0, 4.0, 5.0]), "over queues");
}

/// A change that makes a good request wrong, what it is then, and why.
type Case = (ErrorStatus, &'static str, fn(&mut Request));

fn image_of(request: &mut Request, pool: usize) -> &mut HardwareBuffer {
    match &mut request.pools[pool] {
        RequestMemoryPool::Pool(Memory::HardwareBuffer(buffer)) => buffer,
        other => panic!("{other:?}"),
    }
}

fn description(request: &mut Request) -> &mut HardwareBufferDescription {
    &mut image_of(request, 0).description
}

fn format(request: &mut Request, format: PixelFormat) {
    description(request).format = format;
}

const CASES: &[Case] = &[
    (INVALID, "is used whole", |r| r.inputs[0].location.length = 24),
    (INVALID, "is used whole", |r| r.outputs[0].location.length = 1),
    (INVALID, "is used whole", |r| r.inputs[0].location.offset = 1),
    (INVALID, "is used whole", |r| r.outputs[0].location.padding = 1),
    (INVALID, "length -24 is negative", |r| r.inputs[0].location.length = -24),
    (INVALID, "overlaps", |r| r.outputs[0].location.poolIndex = 0),
    (INVALID, "16 bytes for a TENSOR_FLOAT32 of [2, 3], which has 24", |r| description(r).width = 2),
    (INVALID, "36 bytes for a TENSOR_FLOAT32 of [2, 3], which has 24", |r| description(r).height = 3),
    (INVALID, "12 bytes for a", |r| format(r, PixelFormat::RGB_565)),
    (INVALID, "expected 1 or more", |r| description(r).width = 0),
    (INVALID, "expected 1 or more", |r| description(r).height = -2),
    (INVALID, "expected 1 or more", |r| description(r).layers = 0),
    (INVALID, "expected 1 or more", |r| {
        description(r).width = i32::MIN;
        description(r).height = i32::MIN;
    }),
    (INVALID, "expected 1 to", |r| {
        description(r).width = i32::MAX;
        description(r).height = i32::MAX;
    }),
    (INVALID, "expected 1 to", |r| {
        description(r).width = 1 << 16;
        description(r).height = 1 << 14;
    }),
    (FAILURE, "several layers", |r| description(r).layers = 2),
    (FAILURE, "in one plane", |r| format(r, PixelFormat::YCBCR_420_888)),
    (FAILURE, "in one plane", |r| format(r, PixelFormat::YCBCR_P010)),
    (FAILURE, "in one plane", |r| format(r, PixelFormat::DEPTH_24_STENCIL_8)),
    (FAILURE, "in one plane", |r| format(r, PixelFormat::IMPLEMENTATION_DEFINED)),
    (FAILURE, "in one plane", |r| format(r, PixelFormat(-1))),
    (FAILURE, "without a handle", |r| image_of(r, 0).handle = NativeHandle::default()),
    (FAILURE, "does not import", |r| description(r).stride = 0),
    (FAILURE, "does not import", |r| description(r).stride = i32::MIN),
    (FAILURE, "does not import", |r| {
        // Rows that its memory does not have.
        description(r).stride = i32::MAX / 4;
        image_of(r, 0).handle.ints = handle(i32::MAX, Fault::Nothing);
    }),
    (FAILURE, "does not import", |r| image_of(r, 0).handle.ints = vec![]),
    (FAILURE, "does not import", |r| image_of(r, 0).handle.fds.clear()),
    (FAILURE, "is too long", |r| image_of(r, 0).handle.ints = vec![7; 1025]),
    (FAILURE, "not made for the CPU", |r| description(r).usage = BufferUsage(0x100)),
    (FAILURE, "input 0 lies in pool 0, which can only be written", |r| {
        description(r).usage = BufferUsage(0x30)
    }),
    (FAILURE, "output 0 lies in pool 1, which can only be read", |r| {
        image_of(r, 1).description.usage = BufferUsage(0x3)
    }),
];

#[test]
fn wrong_images_are_refused_in_every_way() {
    let driver = driver();
    let model = driver.prepare(&floor_model(&[2, 3]));
    let (input, output) = (Image::floats(3, 2, 16), Image::floats(3, 2, 16));
    for (expected, why, change) in CASES {
        let mut request = request_of(&input, &output);
        change(&mut request);
        assert_refused(model.executeSynchronously(&request, false, -1, -1), *expected, why);
        assert_refused(model.executeFenced(&request, NO_FENCES, false, -1, -1, -1), *expected, why);
        assert_refused(model.createReusableExecution(&request, &config()), *expected, why);
        let burst = model.configureExecutionBurst().expect("a burst");
        assert_refused(burst.executeSynchronously(&request, &[0, 1], false, -1, -1), *expected, why);
    }
    output.assert_holds(&[UNTOUCHED; 24], "nothing was computed");
    in_every_way(&model, &request_of(&input, &output), &|_| {});
}

#[test]
fn what_has_no_known_dimensions_cannot_be_an_image() {
    let driver = driver();
    let mut untold = floor_model(&[2, 3]);
    untold.main.operands[1].dimensions = vec![];
    let model = driver.prepare(&untold);
    // As large as an operand without dimensions would be.
    for (width, height) in [(3, 2), (1, 1)] {
        let (input, output) = (Image::floats(3, 2, 12), Image::floats(width, height, 12));
        let mut request = request_of(&input, &output);
        let answer = model.executeSynchronously(&request, false, -1, -1);
        assert_refused(answer, INVALID, "output 0: dimensions [] must be known");
        request.outputs[0].dimensions = vec![2, 3];
        let answer = model.executeSynchronously(&request, false, -1, -1);
        assert_eq!(status(&answer) == ErrorStatus::NONE, width == 3);
    }
}

#[test]
fn an_allocator_that_fails_or_lies_costs_the_execution() {
    let driver = driver();
    let model = driver.prepare(&floor_model(&[2, 3]));
    use Fault::*;
    let faults = [
        (DescribesAnotherWidth, "not what its description says"),
        (DescribesSeveralLayers, "not what its description says"),
        (DescribesAnotherFormat, "not what its description says"),
        (DoesNotLock, "does not lock"),
        (LocksNowhere, "does not lock"),
        (TellsNoRows, "does not lock"),
        (TellsOtherPixels, "pixels or rows do not fit"),
        (TellsNegativeRows, "pixels or rows do not fit"),
        (DoesNotUnlock, "does not unlock"),
    ];
    for (fault, why) in faults {
        let (mut input, mut output) = (Image::floats(3, 2, 16), Image::floats(3, 2, 16));
        input.fill(&floats(&[0.5; 6]));
        for is_input in [true, false] {
            (input.fault, output.fault) = if is_input { (fault, Nothing) } else { (Nothing, fault) };
            let request = request_of(&input, &output);
            assert_refused(model.executeSynchronously(&request, false, -1, -1), FAILURE, why);
            // The buffer is locked behind the fence, so the fault shows there.
            if let Ok(fenced) = model.executeFenced(&request, NO_FENCES, false, -1, -1, -1) {
                assert_eq!((wait(&fenced, PATIENCE), info(&fenced).0), (Some(false), FAILURE), "{fault:?}");
            }
            let burst = model.configureExecutionBurst().expect("a burst");
            for _ in 0..2 {
                assert_refused(burst.executeSynchronously(&request, &[0, 1], false, -1, -1), FAILURE, why);
            }
        }
        (input.fault, output.fault) = (Nothing, Nothing);
        in_every_way(&model, &request_of(&input, &output), &|way| output.assert_holds(&[0; 24], way));
    }
}

#[test]
fn an_image_that_vanishes_costs_its_executions_only() {
    let driver = driver();
    let model = driver.prepare(&floor_model(&[2048, 3]));
    let (input, output) = (Image::floats(3, 2048, 16), Image::floats(3, 2048, 16));
    let request = request_of(&input, &output);
    let reusable = model.createReusableExecution(&request, &config()).expect("created");
    reusable.executeSynchronously(-1).expect("executed");
    input.file.set_len(4096).expect("cut short");
    assert_refused(reusable.executeSynchronously(-1), FAILURE, "vanished");
    // The allocator knows how much there is.
    assert_refused(model.executeSynchronously(&request, false, -1, -1), FAILURE, "does not import");
    let whole = Image::floats(3, 2048, 16);
    model.executeSynchronously(&request_of(&whole, &output), false, -1, -1).expect("executed");
}

#[test]
fn the_same_handle_with_other_words_is_another_image_in_a_burst() {
    let driver = driver();
    let model = driver.prepare(&floor_model(&[6]));
    let burst = model.configureExecutionBurst().expect("a burst");
    let values: Vec<f32> = (0..16).map(|i| i as f32 + 0.5).collect();
    let output = Image::floats(6, 1, 24);
    let mut input = Image::floats(3, 2, 16);
    input.file.write_all_at(&floats(&values), 0).expect("written");
    for (width, height, row, expected) in
        [(3, 2, 16, [0, 1, 2, 4, 5, 6]), (2, 3, 16, [0, 1, 4, 5, 8, 9]), (3, 2, 20, [0, 1, 2, 5, 6, 7])]
    {
        (input.description.width, input.description.height) = (width, height);
        (input.row, input.description.stride) = (row, row as i32 / 4);
        for _ in 0..2 {
            let request = request_of(&input, &output);
            burst.executeSynchronously(&request, &[0, 1], false, -1, -1).expect("executed");
            output.assert_holds(&floats(&expected.map(|i| i as f32)), "burst");
        }
    }
}

#[test]
fn no_constant_lies_in_an_image() {
    let driver = driver();
    let image = Image::floats(3, 2, 12);
    for format in [PixelFormat::RGBA_8888, PixelFormat::YCBCR_420_888] {
        let model = || {
            let mut memory = image.memory();
            if let Memory::HardwareBuffer(buffer) = &mut memory {
                buffer.description.format = format;
            }
            sum_model(6, memory)
        };
        let why = "pool 0 is a hardware buffer of another format than BLOB";
        assert_refused(driver.device().getSupportedOperations(&model()), INVALID, why);
        let (launch, (told, prepared)) = driver.connection.launch(&model());
        assert_refused(launch, INVALID, why);
        assert_eq!((told, prepared.is_none()), (INVALID, true));
    }
}

#[test]
fn device_buffers_are_filled_from_images_and_read_into_them() {
    let device = Device { harness: driver() };
    let dims = [2, 3];
    let operand = tensor(OperandType::TENSOR_FLOAT32, &dims, OperandLifeTime::TEMPORARY_VARIABLE);
    let model = device.harness.prepare(&model_of(&[operand]));
    let buffer = device.allocate(&model, &dims, &[0], &[]);
    for row in [12, 32] {
        let bytes: Vec<u8> = (0..24).map(|i| (i + row) as u8).collect();
        let (source, target) = (Image::floats(3, 2, row).with(&bytes), Image::floats(3, 2, row + 4));
        buffer.object.copyFrom(&source.memory(), &[]).expect("copied");
        buffer.object.copyTo(&target.memory()).expect("copied");
        target.assert_holds(&bytes, "copied");
    }
    let small = Image::floats(2, 2, 12);
    assert_refused(buffer.object.copyTo(&small.memory()), INVALID, "a memory of 16 bytes");
    assert_refused(buffer.object.copyFrom(&small.memory(), &[]), INVALID, "a memory of 16 bytes");
    let mut unread = Image::floats(3, 2, 16);
    unread.description.usage = BufferUsage(0x30);
    assert_refused(buffer.object.copyFrom(&unread.memory(), &[]), FAILURE, "not readable");
}

#[test]
fn many_executions_at_once_share_an_image() {
    let driver = driver();
    let input = Image::floats(3, 2, 16).with(&floats(&[1.5; 6]));
    // Each imports it anew, as each request comes with a handle of its own.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let connection = driver.connect();
                let output = Image::floats(3, 2, 20);
                let model = connection.prepare(&floor_model(&[2, 3]));
                for _ in 0..50 {
                    model
                        .executeSynchronously(&request_of(&input, &output), false, -1, -1)
                        .expect("executed");
                    output.assert_holds(&floats(&[1.0; 6]), "beside others");
                }
            });
        }
    });
}
