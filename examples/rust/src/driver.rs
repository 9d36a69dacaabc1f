//! The part of the CUDA driver that the example needs, found in libcuda.so.1 at run time.
use std::ffi::{c_char, c_int, c_void, CString};
use std::{env, mem, ptr};

extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;

pub struct Driver(*mut c_void);

type Outcome<T> = Result<T, String>;

macro_rules! call {
    ($driver:expr, $name:literal, ($($kind:ty),*), $($value:expr),*) => {{
        let function = $driver.find($name)?;
        let function: unsafe extern "C" fn($($kind),*) -> c_int = unsafe { mem::transmute(function) };
        match unsafe { function($($value),*) } {
            0 => Ok(()),
            code => Err(format!("{} failed with CUresult {code}", $name)),
        }
    }};
}

impl Driver {
    pub fn open() -> Outcome<Driver> {
        // the variable that libnojit looks at, too: tests bring a driver of their own
        let path = env::var("NOJIT_LIBCUDA").unwrap_or_else(|_| "libcuda.so.1".into());
        let path = CString::new(path).map_err(|_| "expected a path without zeros")?;
        let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
        if library.is_null() {
            return Err("expected libcuda.so.1, which comes with a CUDA driver".into());
        }
        let driver = Driver(library);
        call!(driver, "cuInit", (u32), 0)?;
        Ok(driver)
    }

    fn find(&self, name: &str) -> Outcome<*mut c_void> {
        let text = CString::new(name).map_err(|_| "expected a name without zeros")?;
        let found = unsafe { dlsym(self.0, text.as_ptr()) };
        if found.is_null() { Err(format!("the driver has no {name}")) } else { Ok(found) }
    }

    /// Make the primary context of a device current.
    pub fn use_device(&self, ordinal: c_int) -> Outcome<()> {
        let (mut device, mut context) = (0, ptr::null_mut());
        call!(self, "cuDeviceGet", (*mut c_int, c_int), &mut device, ordinal)?;
        call!(self, "cuDevicePrimaryCtxRetain", (*mut *mut c_void, c_int), &mut context, device)?;
        call!(self, "cuCtxSetCurrent", (*mut c_void), context)
    }

    /// Copy numbers to new memory of the device, which lives until the process ends.
    pub fn copy(&self, numbers: &[f32]) -> Outcome<u64> {
        let (mut address, bytes) = (0u64, mem::size_of_val(numbers));
        call!(self, "cuMemAlloc_v2", (*mut u64, usize), &mut address, bytes)?;
        call!(self, "cuMemcpyHtoD_v2", (u64, *const f32, usize), address, numbers.as_ptr(), bytes)?;
        Ok(address)
    }

    pub fn read(&self, address: u64, count: usize) -> Outcome<Vec<f32>> {
        let mut numbers = vec![0f32; count];
        call!(self, "cuMemcpyDtoH_v2", (*mut f32, u64, usize), numbers.as_mut_ptr(), address, 4 * count)?;
        Ok(numbers)
    }
}
