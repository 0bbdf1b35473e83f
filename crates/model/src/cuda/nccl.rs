//! Sums of gradients over the devices of several processes, by NCCL.
//!
//! Processes find one another through a [`Collective`] in host memory; numbers then go from device to
//! device. The order of an NCCL sum depends on the number of devices and on how they are connected, so
//! that runs repeat to the bit on the same machine with the same number of processes, not across them.
#![expect(unsafe_code, reason = "NCCL is a C library")]

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use turnwise_core::Collective;

use super::CudaError;
use super::driver::Driver;
use super::library::{Handle, NCCL_F32, NCCL_SUM, NcclId, NcclLibrary, nccl};
use super::memory::Part;

/// The devices of all processes.
pub(crate) struct Devices {
    library: &'static NcclLibrary,
    driver: Arc<dyn Driver>,
    communicator: Handle,
}

impl Devices {
    /// Meets the devices of the other processes; every process calls it.
    pub(crate) fn meet(driver: &Arc<dyn Driver>, ranks: &dyn Collective) -> Result<Self, CudaError> {
        let library = nccl()?;
        let mut id = NcclId([0; 128]);
        if ranks.rank() == 0 {
            // SAFETY: a place for an identifier.
            check(library, "ncclGetUniqueId", unsafe { (library.unique_id)(&raw mut id) })?;
        }
        let failed = |reason: String| CudaError::Call { call: "ncclCommInitRank", reason };
        let bytes = ranks.broadcast(&id.0).map_err(|error| failed(error.to_string()))?;
        id.0 = bytes.try_into().map_err(|_| failed("the identifier of rank 0 has another length".into()))?;
        // The context becomes this thread's.
        driver.memory()?;
        let mut communicator = 0;
        let (count, rank) = (ranks.world_size() as c_int, ranks.rank() as c_int);
        // SAFETY: a place for a handle; the identifier is that of rank 0.
        let code = unsafe { (library.init)(&raw mut communicator, count, id, rank) };
        check(library, "ncclCommInitRank", code)?;
        Ok(Self { library, driver: Arc::clone(driver), communicator })
    }

    /// Leaves the sum over all processes in every one's numbers.
    pub(crate) fn sum(&self, numbers: Part<f32>) -> Result<(), CudaError> {
        let stream = self.driver.stream();
        // SAFETY: part of a buffer of the device, in place, in the order of the stream.
        let code = unsafe {
            let (at, len) = (numbers.at, numbers.len);
            (self.library.all_reduce)(at, at, len, NCCL_F32, NCCL_SUM, self.communicator, stream)
        };
        check(self.library, "ncclAllReduce", code)?;
        let mut state = 0;
        // SAFETY: a place for a code.
        let code = unsafe { (self.library.async_error)(self.communicator, &raw mut state) };
        check(self.library, "ncclCommGetAsyncError", code)?;
        check(self.library, "ncclAllReduce", state)
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // SAFETY: created by `meet` and not used after. Abort does not wait for processes that are gone.
        unsafe { (self.library.abort)(self.communicator) };
    }
}

fn check(library: &NcclLibrary, call: &'static str, code: c_int) -> Result<(), CudaError> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the library answers every code with a static string.
    let reason = unsafe { CStr::from_ptr((library.error_string)(code)) }.to_string_lossy().into_owned();
    Err(CudaError::Call { call, reason })
}
