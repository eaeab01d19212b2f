// SPDX-License-Identifier: MIT OR Apache-2.0
//! Anonymous memory of the host: with a chosen page size, touched page by page, or executed as code.

use std::io;
use std::ptr::NonNull;

/// The page size that the host shall use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// The default of this host.
    Default,
    /// 4 KiB.
    Small,
    /// 2 MiB where possible.
    Huge,
}

/// Fresh private anonymous memory.
pub(crate) struct MappedMemory {
    start: NonNull<u8>,
    bytes: usize,
}

const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;

impl MappedMemory {
    /// Maps memory without touching it.
    pub(crate) fn map(bytes: usize, pages: Pages) -> io::Result<MappedMemory> {
        // Room to start at a multiple of a huge page.
        let bytes = bytes + if pages == Pages::Huge { HUGE_PAGE } else { 0 };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh anonymous mapping; no existing memory is affected.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = MappedMemory { start: NonNull::new(start.cast()).expect("a mapping is not at address 0"), bytes };
        let advice = match pages {
            Pages::Default => return Ok(memory),
            Pages::Small => libc::MADV_NOHUGEPAGE,
            Pages::Huge => libc::MADV_HUGEPAGE,
        };
        // A kernel without huge pages knows neither advice, and behaves as the first one asks.
        // SAFETY: the range is the mapping just made; the advice changes no content.
        unsafe { libc::madvise(start, bytes, advice) };
        Ok(memory)
    }

    /// Its start address.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Its size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes into it.
    ///
    /// # Panics
    /// If they do not fit.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.bytes), "within the memory");
        // SAFETY: the range lies in the mapping, as just checked. The mapping is ours, writable, and never referenced as Rust data.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset), bytes.len()) };
    }

    /// Writes a byte into every page.
    pub(crate) fn touch(&mut self) {
        for offset in (0..self.bytes).step_by(PAGE) {
            // SAFETY: the offset lies in the mapping, which is ours, writable, and never referenced as Rust data.
            unsafe { self.start.as_ptr().add(offset).write_volatile(1) };
        }
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing points into it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Machine code of a function that takes the address of a buffer and returns a number.
pub(crate) struct Function(MappedMemory);

impl Function {
    /// Makes `code` callable.
    ///
    /// # Safety
    /// 1. The code is a function of the System V ABI that takes one pointer and returns a 64-bit integer.
    /// 2. It reads and writes only the buffer behind that pointer, within the length that [`Function::call`] gets.
    pub(crate) unsafe fn new(code: &[u8]) -> io::Result<Function> {
        let memory = MappedMemory::map(code.len().next_multiple_of(PAGE), Pages::Default)?;
        // SAFETY: the mapping is at least as long as the code, new, and referenced by nobody else.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), memory.start.as_ptr(), code.len()) };
        // SAFETY: the range is the mapping's; it holds no Rust data.
        let refused = unsafe { libc::mprotect(memory.start.as_ptr().cast(), memory.bytes, libc::PROT_READ | libc::PROT_EXEC) } != 0;
        if refused { Err(io::Error::last_os_error()) } else { Ok(Function(memory)) }
    }

    /// Calls it.
    ///
    /// # Safety
    /// `buffer` is at least as long as the code requires.
    pub(crate) unsafe fn call(&self, buffer: &mut [u8]) -> u64 {
        // SAFETY: by the conditions of `new` the mapping holds a function of this type; it stays mapped during the call.
        let function: extern "sysv64" fn(*mut u8) -> u64 = unsafe { std::mem::transmute(self.0.start.as_ptr()) };
        function(buffer.as_mut_ptr())
    }
}
