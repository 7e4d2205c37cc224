//! What paging needs of the CPU it runs on, so that everything else runs on the host too.

use machine::{Frame, Page, UserAddr, UserFault};

/// All methods act on the CPU that calls; the kernel isn't preempted, so that doesn't change midway.
pub trait Hardware: Send + Sync + 'static {
    /// CPUs of this kernel.
    fn cpus(&self) -> usize;
    /// The current one, counted from zero.
    fn cpu(&self) -> usize;
    /// The top-level table that has the kernel half only.
    fn kernel_root(&self) -> Frame;

    /// Switches to another top-level table and forgets all translations of user space.
    fn load_root(&self, root: Frame);
    fn invalidate_page(&self, page: Page);
    /// Forgets all translations of user space.
    fn invalidate_all(&self);
    /// Makes another CPU of this kernel leave user mode.
    fn interrupt(&self, cpu: usize);
    /// Called while spinning.
    fn relax(&self);

    /// Maps a frame of another partition for the current CPU, which has two such windows.
    fn open_window(&self, window: Window, frame: Frame) -> *mut u8;
    fn close_window(&self, window: Window);

    /// User memory of the loaded table; the caller keeps addresses below the end of user space.
    fn read_user(&self, from: UserAddr, to: &mut [u8]) -> Result<(), UserFault>;
    /// The same to memory that may change meanwhile.
    ///
    /// # Safety
    /// `to` is mapped for `bytes` bytes, and nobody holds a reference to them.
    unsafe fn read_user_to(&self, from: UserAddr, to: *mut u8, bytes: usize) -> Result<(), UserFault>;
    fn write_user(&self, to: UserAddr, from: &[u8]) -> Result<(), UserFault>;
    /// The same from memory that may change meanwhile.
    ///
    /// # Safety
    /// `from` is mapped for `bytes` bytes.
    unsafe fn write_user_from(&self, to: UserAddr, from: *const u8, bytes: usize) -> Result<(), UserFault>;
    fn zero_user(&self, to: UserAddr, bytes: usize) -> Result<(), UserFault>;
    /// Bytes before the NUL, or `limit`.
    fn user_string_length(&self, string: UserAddr, limit: usize) -> Result<usize, UserFault>;
    fn load_user_u32(&self, at: UserAddr) -> Result<u32, UserFault>;
    fn compare_exchange_user_u32(&self, at: UserAddr, old: u32, new: u32) -> Result<Result<u32, u32>, UserFault>;
}

/// Two, so that a frame can be copied from one foreign partition to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    Source,
    Target,
}
