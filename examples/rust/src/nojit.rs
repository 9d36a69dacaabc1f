//! The part of nojit.h that the example calls, declared by hand; and handles that close themselves.
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::{fmt, mem, ptr};

#[repr(C)]
pub struct NjError {
    pub code: c_int,
    pub argument: c_int,
    pub driver_code: c_int,
    pub system_code: c_int,
    pub call: [c_char; 32],
    pub rule: [c_char; 32],
    pub what: [c_char; 384],
    pub got: [c_char; 384],
    pub place: [c_char; 640], // nojit.h calls it `where`, which Rust reserves
    reserved: [c_char; 48],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Arg {
    kind: u32,
    dtype: u32,
    bits: u64,
    count: usize,
}

#[repr(C)]
struct Keyword {
    name: *const c_char,
    value: Arg,
}

#[repr(C)]
struct Call {
    args: *const Arg,
    arg_count: usize,
    keywords: *const Keyword,
    keyword_count: usize,
}

enum NjBundle {}
enum NjKernel {}

/// NOJIT_VERSION_NUMBER of the nojit.h that the declarations here follow.
const VERSION: c_int = 1;

extern "C" {
    fn nj_version() -> c_int;
    fn nj_error_text(error: *const NjError, text: *mut c_char, room: usize) -> usize;
    fn nj_bundle_open(path: *const c_char, options: *const c_void, error: *mut NjError) -> *mut NjBundle;
    fn nj_bundle_close(bundle: *mut NjBundle);
    fn nj_bundle_kernel(bundle: *mut NjBundle, name: *const c_char, error: *mut NjError) -> *mut NjKernel;
    fn nj_bundle_kernel_name(bundle: *const NjBundle, number: usize) -> *const c_char;
    fn nj_kernel_launch(kernel: *mut NjKernel, call: *const Call, setup: *const c_void, error: *mut NjError) -> c_int;
}

impl Arg {
    pub fn int(value: i64) -> Arg {
        Arg { kind: 3, dtype: 0, bits: value as u64, count: 0 }
    }

    /// A pointer to fp32 values of the device.
    pub fn fp32(address: u64) -> Arg {
        Arg { kind: 6, dtype: 13, bits: address, count: 0 }
    }
}

#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<&NjError> for Error {
    fn from(error: &NjError) -> Error {
        let mut text: [c_char; 1024] = [0; 1024];
        unsafe { nj_error_text(error, text.as_mut_ptr(), text.len()) };
        Error(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }
}

/// An open bundle.
pub struct Bundle(*mut NjBundle);

impl Bundle {
    pub fn open(path: &str) -> Result<Bundle, Error> {
        let version = unsafe { nj_version() };
        if version != VERSION {
            return Err(Error(format!("expected libnojit of version {VERSION}, got {version}: declare the functions of its nojit.h")));
        }
        let path = CString::new(path).map_err(|_| Error("expected a path without zeros".into()))?;
        let mut error: NjError = unsafe { mem::zeroed() };
        let bundle = unsafe { nj_bundle_open(path.as_ptr(), ptr::null(), &mut error) };
        if bundle.is_null() { Err(Error::from(&error)) } else { Ok(Bundle(bundle)) }
    }

    pub fn kernels(&self) -> Vec<String> {
        (0..)
            .map(|number| unsafe { nj_bundle_kernel_name(self.0, number) })
            .take_while(|name| !name.is_null())
            .map(|name| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
            .collect()
    }

    pub fn kernel(&self, name: &str) -> Result<Kernel<'_>, Error> {
        let name = CString::new(name).map_err(|_| Error("expected a name without zeros".into()))?;
        let mut error: NjError = unsafe { mem::zeroed() };
        let kernel = unsafe { nj_bundle_kernel(self.0, name.as_ptr(), &mut error) };
        if kernel.is_null() { Err(Error::from(&error)) } else { Ok(Kernel(kernel, self)) }
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        unsafe { nj_bundle_close(self.0) }
    }
}

/// A kernel, which lives as long as its bundle.
pub struct Kernel<'bundle>(*mut NjKernel, #[allow(dead_code)] &'bundle Bundle);

impl Kernel<'_> {
    /// Launch on the default stream of the current device, with the bundle's grid.
    ///
    /// # Safety
    /// Pointers among `args` are to memory of the device that the kernel may use.
    pub unsafe fn launch(&self, args: &[Arg]) -> Result<(), Error> {
        let mut error: NjError = mem::zeroed();
        let call = Call { args: args.as_ptr(), arg_count: args.len(), keywords: ptr::null(), keyword_count: 0 };
        match nj_kernel_launch(self.0, &call, ptr::null(), &mut error) {
            0 => Ok(()),
            _ => Err(Error::from(&error)),
        }
    }
}
