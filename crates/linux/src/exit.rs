//! What a thread owes user space when it ends, or leaves it by execve: robust futexes and the word at clear_child_tid.

use alloc::sync::Arc;
use futex::{ANY, OWNER_DIED, TID_MASK, WAITERS};
use machine::{errno::Result, Errno, UserAddr};
use messages::process::ExitStatus;
use process::Thread;

/// Most locks a robust list may name (ROBUST_LIST_LIMIT).
const ROBUST_LIMIT: usize = 2048;

/// exit(2): the thread ends with `code`, the process goes on if others live.
pub(crate) async fn thread(thread: &Arc<Thread>, code: u8) {
    say_goodbye(thread).await;
    thread.exit(ExitStatus::Code(code)).await;
}

/// The thread ends because its process does (or execve elsewhere wants it gone).
pub(crate) async fn leave(thread: &Arc<Thread>) {
    say_goodbye(thread).await;
    thread.exit(ExitStatus::Code(0)).await;
}

async fn say_goodbye(thread: &Arc<Thread>) {
    thread.discount();
    leave_memory(thread).await;
}

/// Also before execve (Linux: exec_mm_release).
pub(crate) async fn leave_memory(thread: &Arc<Thread>) {
    let (robust, clear) = {
        let state = thread.state.lock();
        (state.robust_list.0, state.clear_child_tid)
    };
    // A process that shares its memory with nobody any more may have broken words: they harm only itself.
    if robust != 0 {
        let _ = release_robust(thread, robust).await;
    }
    if clear != 0 {
        let _ = clear_tid(thread, UserAddr(clear)).await;
    }
}

/// man 2 set_tid_address: zero, then wake one waiter (pthread_join).
async fn clear_tid(thread: &Arc<Thread>, at: UserAddr) -> Result<()> {
    let space = thread.process.space();
    space.write(at, &0u32.to_le_bytes()).await?;
    // glibc waits with a shared futex, musl with a private one: the key of private anonymous memory is the
    // same for both.
    let key = space.futex_key(at, true).await?;
    thread.process.system.futexes.wake(key, 1, ANY).await?;
    Ok(())
}

/// man 2 get_robust_list: marks every lock this thread holds and wakes one waiter of each.
async fn release_robust(thread: &Arc<Thread>, head: u64) -> Result<()> {
    let space = thread.process.space();
    let word = |at: u64| {
        let space = space.clone();
        async move {
            let mut bytes = [0; 8];
            space.read(UserAddr(at), &mut bytes).await?;
            Result::Ok(u64::from_le_bytes(bytes))
        }
    };
    let mut entry = word(head).await?;
    let offset = word(head + 8).await?;
    let pending = word(head + 16).await?;
    for _ in 0..ROBUST_LIMIT {
        // Bit 0 marks priority-inheritance futexes.
        let at = entry & !1;
        if at == head {
            break;
        }
        let next = word(at).await?;
        if at != pending & !1 {
            handle_death(thread, at.wrapping_add(offset), entry & 1 != 0, false).await?;
        }
        entry = next;
    }
    if pending & !1 != 0 {
        handle_death(thread, (pending & !1).wrapping_add(offset), pending & 1 != 0, true).await?;
    }
    Ok(())
}

/// `inherits`: a lock with an owner, which is handed on when the thread's process hears of its end (crate `futex`).
async fn handle_death(thread: &Arc<Thread>, at: u64, inherits: bool, pending: bool) -> Result<()> {
    let space = thread.process.space();
    let wake = || async {
        let key = space.futex_key(UserAddr(at), true).await?;
        thread.process.system.futexes.wake(key, 1, ANY).await
    };
    if !at.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    let at = UserAddr(at);
    let mut value = space.load_u32(at).await?;
    // It had freed the lock, and was ended before it woke a waiter.
    if pending && !inherits && value == 0 {
        wake().await?;
        return Ok(());
    }
    while value & TID_MASK == thread.tid.0 {
        let new = value & WAITERS | OWNER_DIED;
        match space.compare_exchange_u32(at, value, new).await? {
            Err(found) => value = found,
            Ok(_) => {
                if value & WAITERS != 0 && !inherits {
                    wake().await?;
                }
                break;
            }
        }
    }
    Ok(())
}
