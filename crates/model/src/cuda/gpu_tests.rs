#![expect(unsafe_code, reason = "the doubles have the signatures of C functions")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use super::driver::{Driver, Matrix, Output, Product, Recorder};
use super::gpu::{Gpu, check_blas};
use super::library::{BlasLibrary, DriverLibrary, Handle};

#[derive(Default)]
struct Device {
    made: usize,
    capturing: Option<Handle>,
    clears: Vec<(Handle, bool)>,
    products: Vec<Handle>,
    streams_of_handles: Vec<(Handle, Handle)>,
    math_modes: Vec<(Handle, c_int)>,
    executables: [Vec<Handle>; 2],
    refusing: bool,
}

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    *DEVICE.lock().unwrap_or_else(PoisonError::into_inner) = None;
    turn
}

static DEVICE: Mutex<Option<Device>> = Mutex::new(None);

fn device<T>(look: impl FnOnce(&mut Device) -> T) -> T {
    look(DEVICE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

fn make(at: *mut Handle) -> c_int {
    let made = device(|device| {
        device.made += 1;
        device.made
    });
    // SAFETY: the out-pointer is valid.
    unsafe { at.write(made) };
    0
}

unsafe extern "C" fn make_stream(at: *mut Handle, _: c_uint) -> c_int {
    make(at)
}
unsafe extern "C" fn make_handle(at: *mut Handle) -> c_int {
    make(at)
}
unsafe extern "C" fn one(at: *mut c_int) -> c_int {
    // SAFETY: the out-pointer is valid.
    unsafe { at.write(1) };
    0
}
unsafe extern "C" fn zeroth(at: *mut c_int, _: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { at.write(0) };
    0
}
unsafe extern "C" fn attribute(at: *mut c_int, _: c_int, _: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { at.write(9) };
    0
}
unsafe extern "C" fn allocate(at: *mut u64, _: usize) -> c_int {
    // SAFETY: as above.
    unsafe { at.write(4096) };
    0
}
unsafe extern "C" fn clear(_: u64, _: u8, _: usize, stream: Handle) -> c_int {
    device(|device| device.clears.push((stream, device.capturing == Some(stream))));
    0
}
unsafe extern "C" fn begin_capture(stream: Handle, _: c_uint) -> c_int {
    device(|device| {
        assert_eq!(device.capturing, None, "one capture at a time");
        device.capturing = (!device.refusing).then_some(stream);
        c_int::from(device.refusing)
    })
}
unsafe extern "C" fn end_capture(stream: Handle, graph: *mut Handle) -> c_int {
    assert_eq!(device(|device| device.capturing.take()), Some(stream));
    make(graph)
}
unsafe extern "C" fn instantiate(at: *mut Handle, _: Handle, _: u64) -> c_int {
    make(at);
    // SAFETY: just written.
    let made = unsafe { at.read() };
    device(|device| device.executables[0].push(made));
    0
}
unsafe extern "C" fn destroy_executable(executable: Handle) -> c_int {
    device(|device| device.executables[1].push(executable));
    0
}
unsafe extern "C" fn retain(at: *mut Handle, _: c_int) -> c_int {
    make(at)
}
unsafe extern "C" fn set_stream(handle: Handle, stream: Handle) -> c_int {
    device(|device| device.streams_of_handles.push((handle, stream)));
    0
}
unsafe extern "C" fn set_math_mode(handle: Handle, mode: c_int) -> c_int {
    device(|device| device.math_modes.push((handle, mode)));
    0
}
unsafe extern "C" fn multiply(
    handle: Handle,
    _: c_int,
    _: c_int,
    _: c_int,
    _: c_int,
    _: c_int,
    _: *const f32,
    _: u64,
    _: c_int,
    _: c_int,
    _: u64,
    _: c_int,
    _: c_int,
    _: *const f32,
    _: u64,
    _: c_int,
    _: c_int,
    _: c_int,
    _: c_int,
) -> c_int {
    device(|device| device.products.push(handle));
    0
}

macro_rules! nothing {
    ($($name:ident($($argument:ty),*);)*) => {
        $(unsafe extern "C" fn $name($(_: $argument),*) -> c_int {
            0
        })*
    };
}

nothing! {
    init(c_uint);
    error_string(c_int, *mut *const c_char);
    device_name(*mut c_char, c_int, c_int);
    set_current(Handle);
    memory_info(*mut usize, *mut usize);
    free(u64);
    upload(u64, *const c_void, usize, Handle);
    download(*mut c_void, u64, usize, Handle);
    copy(u64, u64, usize, Handle);
    wait(Handle);
    load(*mut Handle, *const c_void);
    function(*mut Handle, Handle, *const c_char);
    set_attribute(Handle, c_int, c_int);
    launch(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    launch_graph(Handle, Handle);
    destroy_graph(Handle);
    set_workspace(Handle, u64, usize);
}

static DRIVER: DriverLibrary = DriverLibrary {
    init,
    version: one,
    error_string,
    device_count: one,
    device: zeroth,
    device_name,
    device_attribute: attribute,
    retain,
    set_current,
    memory_info,
    allocate,
    free,
    upload,
    download,
    copy,
    clear,
    stream: make_stream,
    wait,
    load,
    function,
    set_attribute,
    launch,
    begin_capture,
    end_capture,
    instantiate,
    launch_graph,
    destroy_graph,
    destroy_executable,
};

static BLAS: BlasLibrary =
    BlasLibrary { create: make_handle, set_stream, set_workspace, set_math_mode, multiply };

#[test]
fn a_recording_has_a_stream_of_its_own_and_products_keep_their_sums_wide() {
    let _alone = alone();
    let gpu = Gpu::with(&DRIVER, &BLAS, 0).unwrap();
    let handles: Vec<(Handle, Handle)> = device(|device| device.streams_of_handles.clone());
    assert_eq!(handles.len(), 2);
    for (handle, _) in &handles {
        assert!(device(|device| device.math_modes.contains(&(*handle, 16))));
    }
    let matrix = Matrix { at: 0, stride: 1, transposed: false };
    let c = Output { at: 0, stride: 1, wide: true };
    let product = Product { a: matrix, b: matrix, c, m: 1, n: 1, k: 1, alpha: 1.0, beta: 0.0 };
    let (go, may_go) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    std::thread::scope(|scope| {
        let gpu = &gpu;
        scope.spawn(move || {
            may_go.recv().unwrap();
            gpu.clear(0, 1).unwrap();
            gpu.multiply(&product).unwrap();
            done.send(()).unwrap();
        });
        gpu.record().unwrap();
        gpu.clear(0, 1).unwrap();
        gpu.multiply(&product).unwrap();
        go.send(()).unwrap();
        is_done.recv().unwrap();
        gpu.finish_recording().unwrap();
        gpu.clear(0, 1).unwrap();
    });
    let clears = device(|device| device.clears.clone());
    assert_eq!(clears.iter().map(|clear| clear.1).collect::<Vec<_>>(), [true, false, false]);
    assert!(clears[0].0 != clears[1].0 && clears[1].0 == clears[2].0);
    let products = device(|device| device.products.clone());
    let stream = |handle: Handle| handles.iter().find(|pair| pair.0 == handle).map(|pair| pair.1);
    assert_eq!([stream(products[0]), stream(products[1])], [Some(clears[0].0), Some(clears[1].0)]);
}

#[test]
fn a_recording_ends_with_a_failure_or_a_panic_and_is_forgotten() {
    let _alone = alone();
    let gpu = Gpu::with(&DRIVER, &BLAS, 0).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _recorder = Recorder::begin(&gpu).unwrap();
        gpu.clear(0, 1).unwrap();
        assert_eq!(gpu.multiprocessors(), 0, "a panic between two launches");
    }));
    assert!(panicked.is_err());
    assert_eq!(device(|device| device.capturing), None);
    let ended = device(|device| device.executables.clone());
    assert!(ended[0].len() == 1 && ended[0] == ended[1], "{ended:?}");
    // This thread's work runs again, and recording works.
    gpu.clear(0, 1).unwrap();
    assert_eq!(device(|device| device.clears.last().map(|clear| clear.1)), Some(false));
    let recorder = Recorder::begin(&gpu).unwrap();
    gpu.clear(0, 1).unwrap();
    gpu.replay(recorder.finish().unwrap()).unwrap();
    assert_eq!(device(|device| device.executables.each_ref().map(Vec::len)), [2, 1]);
    device(|device| device.refusing = true);
    assert!(Recorder::begin(&gpu).is_err());
    device(|device| device.refusing = false);
    Recorder::begin(&gpu).unwrap().finish().unwrap();
}

#[test]
fn a_status_of_cublas_is_named() {
    assert!(check_blas("cublasCreate", 0).is_ok());
    let text = |code| check_blas("cublasCreate", code).unwrap_err().to_string();
    assert!(text(1).contains("status 1") && text(1).contains("newer than the driver can run"), "{}", text(1));
    assert!(text(99).contains("status 99"), "{}", text(99));
}
