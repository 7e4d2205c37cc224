//! The life of a thread: user mode, trap, answer, user mode.
//!
//! Everything that happens *to* a thread happens at the boundary, in this order: it ends, it stops, it gets
//! signals, it moves. A system call that was interrupted ([`Errno::RESTART`]) is decided there too: restarted
//! if no handler runs or the handler has SA_RESTART, EINTR otherwise (man 7 signal).

use crate::{call::Call, table};
use abi::signal::{Signal, SignalInfo};
use alloc::{
    boxed::Box,
    collections::BTreeSet,
    string::{String, ToString},
    sync::Arc,
};
use machine::{sync::Lock, BoxFuture, Errno, Trap, UserRegisters};
use process::{Abi, Absence, Context, Flags, Thread};

/// Missing calls that are remembered as reported.
const MOST_REPORTED: usize = 256;

#[derive(Default)]
pub struct Linux {
    /// Missing calls that were reported: program and number.
    reported: Lock<BTreeSet<(String, u64)>>,
}

/// One line a call, with `cob.log=trace`.
fn log_call(call: &Call<'_>, number: u64, result: &machine::errno::Result<u64>) {
    log::trace!(
        "{} {}({:x?}) = {:x?}",
        call.thread.tid,
        table::name_of(number).unwrap_or("?"),
        call.arguments(),
        result
    );
}

/// A system call that was interrupted before it did anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restart {
    pub number: u64,
    pub kind: Errno,
}

impl Restart {
    /// A signal or a stop has come to the thread: some calls are over by that, though no handler runs.
    pub fn touched(restart: &mut Option<Restart>) {
        *restart = restart.take().filter(|restart| restart.kind != Errno::RESTART_UNTOUCHED);
    }
}

impl Abi for Linux {
    fn run(self: Arc<Self>, thread: Arc<Thread>, context: Context) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.live(&thread, context).await })
    }

    fn leave_memory<'a>(&'a self, thread: &'a Arc<Thread>) -> BoxFuture<'a, ()> {
        Box::pin(crate::exit::leave_memory(thread))
    }
}

impl Linux {
    async fn live(&self, thread: &Arc<Thread>, mut context: Context) {
        let scheduler = thread.process.system.scheduler.clone();
        let mut restart = None;
        let mut faulted = false;
        let mut space = None;
        loop {
            while thread.wants_attention() || restart.is_some() {
                // Not kept by one who stops or goes away.
                space = None;
                if self.boundary(thread, &mut context, &mut restart).await == Absence::Over {
                    return;
                }
            }
            if let Some(injector) = &thread.process.system.injector {
                match thread.inject_fault(injector, &mut context, core::mem::take(&mut faulted)).await {
                    Some(Absence::Over) => return,
                    Some(Absence::Back) => continue,
                    None => {}
                }
            }
            if scheduler.should_yield() {
                machine::yield_now().await;
                continue;
            }
            if thread.was_descheduled() {
                let overran = thread.take_overrun();
                if overran {
                    // In a box: it is rare, and its state would be part of every thread's.
                    Box::pin(thread.tell_overrun()).await;
                }
                let is_current = crate::rseq::is_current(thread, thread.process.known_space(&mut space));
                if !is_current && crate::rseq::resume(thread, &mut context).await.is_err() {
                    crate::signal::force(thread, &mut context, SignalInfo::kernel(Signal::SEGV)).await;
                }
                let has_woken = thread.enters_user();
                if overran || !is_current || has_woken {
                    // That took time, and maybe the CPU; or somebody waits for this CPU now: look at everything once more.
                    continue;
                }
            }
            match thread.run_user(&mut context, &mut space) {
                // The CPU's loop looks at doorbells, devices and timers.
                Trap::Interrupt => machine::yield_now().await,
                Trap::Syscall => {
                    let system = &thread.process.system;
                    if system.memory.is_short() && thread.unless_killed(system.relieved()).await.is_none() {
                        continue;
                    }
                    let number = context.registers.call_number();
                    let mut call = Call::new(thread, &mut context);
                    if trace::on::syscall_entry() {
                        let [a0, a1, a2, a3, a4, a5] = call.arguments();
                        trace::syscall_entry(number as u32, thread.tid.0, a0, a1, a2, a3, a4, a5);
                    }
                    // Pinned where it is made: the state of all calls together is kilobytes, and `.await` alone would copy it.
                    let answer = core::pin::pin!(table::dispatch(number, &mut call)).await;
                    let result = match answer {
                        Some(result) => result,
                        None => Err(self.missing(thread, number)),
                    };
                    scheduler.begin_deferred();
                    if trace::on::syscall_exit() {
                        let value = result.unwrap_or_else(Errno::to_return);
                        trace::syscall_exit(number as u32, thread.tid.0, value);
                    }
                    log_call(&call, number, &result);
                    if call.over {
                        return;
                    }
                    match result {
                        Ok(value) => context.registers.set_result(value),
                        Err(
                            kind @ (Errno::RESTART
                            | Errno::RESTART_NO_HANDLER
                            | Errno::RESTART_ALWAYS
                            | Errno::RESTART_UNTOUCHED),
                        ) => {
                            context.registers.set_result(Errno::EINTR.to_return());
                            restart = Some(Restart { number, kind });
                        }
                        Err(error) => context.registers.set_result(error.to_return()),
                    }
                }
                Trap::Page { at, access } => {
                    trace::page_fault_user(at.0, thread.tid.0, access.bits());
                    crate::trap::page(thread, &mut context, at, access).await;
                    if trace::on::fault_done() {
                        let outcome = if thread.must_end() { 2 } else { u8::from(thread.is_interrupted()) };
                        trace::fault_done(at.0, thread.tid.0, outcome);
                    }
                    faulted = true;
                }
                Trap::Exception(exception) => crate::trap::exception(thread, &mut context, exception).await,
            }
        }
    }

    /// What waits at the boundary; Over if the thread is no more.
    async fn boundary(&self, thread: &Arc<Thread>, context: &mut Context, restart: &mut Option<Restart>) -> Absence {
        let process = &thread.process;
        if thread.must_end() {
            crate::exit::leave(thread).await;
            return Absence::Over;
        }
        if process.has(Flags::STOPPED) {
            thread.wait_while_stopped().await;
            Restart::touched(restart);
            return Absence::Back;
        }
        // Before it moves: what an interrupted call becomes is known here only, for the shadow keeps `restart`.
        crate::signal::deliver(thread, context, restart).await;
        if thread.must_end() || process.has(Flags::STOPPED) {
            return Absence::Back;
        }
        thread.settle(context).await
    }

    /// Names a missing call once per program.
    fn missing(&self, thread: &Thread, number: u64) -> Errno {
        let name = String::from_utf8_lossy(&thread.state.lock().name).to_string();
        let mut reported = self.reported.lock();
        // Programs choose their names: when there are too many, what was reported is forgotten, and reported once more.
        if reported.len() >= MOST_REPORTED {
            reported.clear();
        }
        if reported.insert((name.clone(), number)) {
            log::warn!("{name}: system call {number} is not implemented");
        }
        Errno::ENOSYS
    }
}
