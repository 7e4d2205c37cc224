//! What this kernel answers to others about processes: one registration per message of
//! `messages::process`, each a line that calls the code of its subject.

use crate::System;
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, Errno};
use messages::{
    cgroup::*,
    descriptor::*,
    inspect::*,
    process::*,
    timer::{AwaitEnd, Barrier, TimerCall},
};

pub(crate) fn register(system: &Arc<System>) {
    let serve = system.endpoint.serve(system);
    macro_rules! answer {
        ($message:ty, |$system:ident, $from:ident, $ask:ident| $body:expr) => {
            serve.on_to_completion(|$system, $from, $ask: $message| async move { $body });
        };
    }
    macro_rules! process {
        ($system:ident, $ask:ident) => {
            $system.process($ask.process)
        };
    }

    serve.on_sync(|system, from, ask: Join| match process!(system, ask) {
        Some(process) => process.replica_for(from),
        None => Err(Errno::ESRCH),
    });
    serve.on_sync(|system, from, ask: PushReplica| system.push_replica(from, ask));
    answer!(AskDirectories, |system, from, ask| match process!(system, ask) {
        Some(process) if process.is_home() => process.open_for(from).await,
        _ => Err(Errno::ESRCH),
    });
    answer!(Migrate, |system, from, ask| system.arrive(from, ask).await);
    answer!(Moved, |system, _from, ask| if let Some(process) = process!(system, ask) {
        process.member_moved(ask.thread, ask.to, ask.moves);
    });
    answer!(ChangeShared, |system, _from, ask| {
        let step = system.step(ask.change)?;
        process!(system, ask).ok_or(Errno::ESRCH)?.change_asked(step).await
    });
    answer!(ApplyChange, |system, _from, ask| {
        let step = system.step(ask.change);
        let Some(process) = system.replica(ask.process).await else { return };
        if let Err(error) = process.follow(step).await {
            log::error!("process {}: a replica could not follow a change: {error:?}", process.id);
        }
    });
    answer!(BeginFork, |system, _from, ask| match process!(system, ask) {
        Some(process) => Ok(process.begin_fork_here(ask.child, ask.blocked).await),
        None => Err(Errno::ESRCH),
    });
    answer!(EndFork, |system, _from, ask| match process!(system, ask) {
        Some(process) => process.end_fork_here(ask.child),
        None => Default::default(),
    });
    answer!(ThreadBorn, |system, _from, ask| match process!(system, ask) {
        Some(process) => process.admit_member(ask.thread, ask.at).await,
        None => Err(Errno::ESRCH),
    });
    answer!(ThreadGone, |system, _from, ask| if let Some(process) = process!(system, ask) {
        process.member_gone(ask).await;
    });
    answer!(EndShadow, |system, _from, ask| system.end_shadow(ask.thread));
    answer!(EndProcess, |system, _from, ask| if let Some(process) = process!(system, ask) {
        process.end(ask.status).await;
    });
    answer!(Unthread, |system, _from, ask| match process!(system, ask) {
        Some(process) => process.unthread(ask.survivor).await,
        None => Err(Errno::ESRCH),
    });
    answer!(EndThreads, |system, _from, ask| if let Some(process) = system.replica(ask.process).await {
        process.end_local(ask.status, ask.survivor);
    });
    answer!(DropReplica, |system, _from, ask| system.drop_replica(ask.process).await);
    answer!(SetStopped, |system, _from, ask| if let Some(process) = system.replica(ask.process).await {
        process.set_pending(ask.pending);
        process.set_stop_state(ask.stop_state);
    });
    answer!(StopProcess, |system, _from, ask| if let Some(process) = process!(system, ask) {
        process.stop_here(ask.signal, ask.continues).await;
    });
    answer!(Sending, |system, _from, ask| system.sending_here(ask.process, ask.signal).await);
    answer!(SignalProcess, |system, _from, ask| {
        system.signal_process_here(ask.process, ask.info, ask.sender).await
    });
    answer!(SignalThread, |system, _from, ask| system.route_to_thread(ask).await);
    answer!(SignalGroup, |system, _from, ask| system.signal_group_here(ask).await);
    answer!(PendingSignals, |system, _from, ask| system.pending_told(ask.process, ask.pending));
    answer!(AskBlocked, |system, _from, ask| system.block_here(&ask.threads, ask.signal));
    answer!(AskIgnores, |system, _from, ask| system.ignores(ask.process, ask.thread, ask.signal).await);
    answer!(GroupParents, |system, _from, ask| system.members_here(ask.group));
    answer!(GroupOf, |system, _from, ask| system.group_here(ask.process));
    answer!(SetName, |system, _from, ask| system.decide_name(ask.domain, ask.name).await);
    answer!(TellFacts, |system, _from, ask| system.learn(ask.facts));
    answer!(TakeSignal, |system, _from, ask| match process!(system, ask) {
        Some(process) => process.take_signal_here(ask.wanted, ask.acts).await,
        None => Default::default(),
    });
    answer!(PutBack, |system, _from, ask| {
        if let Some(process) = process!(system, ask) {
            process.put_back_here(ask.signals);
        }
    });
    answer!(ChildChanged, |system, _from, ask| system.child_changed_here(ask).await);
    answer!(AdoptChild, |system, _from, ask| system.child_in_group(&ask));
    // A wait is the one question that a signal may take back.
    serve.on(|system, _, ask: Wait| async move {
        match system.process(ask.parent) {
            Some(parent) => parent.wait_here(ask).await,
            None => Err(Errno::ECHILD),
        }
    });
    answer!(Reap, |system, _from, ask| system.forget(ask.child));
    answer!(Reparent, |system, _from, ask| system.reparent_here(ask.child, ask.parent).await);
    answer!(SetGroup, |system, _from, ask| {
        system.set_group_here(ask.process, ask.group, ask.caller, ask.session).await
    });
    answer!(FindGroup, |system, _from, ask| system.session_here(ask.group));
    answer!(ListProcesses, |system, _from, _ask| system.list_here());
    answer!(FindThread, |system, _from, ask| system.born_here.lock().get(&ask.thread).copied());
    answer!(InspectProcess, |system, _from, ask| system.inspect_for(ask).await);
    answer!(InspectFile, |system, from, ask| {
        let file = system.file_here(ask.process, ask.which, &ask.reader).await?;
        let given = system.descriptor_transfer.give_away(&file, from).await;
        fs::file::close(file).await;
        given
    });
    answer!(ListThreads, |system, _from, ask| match process!(system, ask) {
        Some(process) => process.threads_here(),
        None => Default::default(),
    });
    answer!(AskTalker, |system, from, ask| system.talker_here(ask.thread, from));
    answer!(Gather, |system, from, ask| system.send_gathered(ask.thread, ask.with_others, from));
    answer!(ChangeScheduling, |system, _from, ask| system.route_scheduling_change(ask).await);

    serve.on_sync(|system, _, ask: CgroupFork| {
        system.with_cgroups(|tree| tree.fork(ask.parent, ask.child, ask.into.as_ref()))
    });
    serve.on_sync(|system, _, ask: CgroupLife| system.cgroup_life(ask.process, ask.life));
    serve.on_sync(|system, _, ask: CgroupThreads| {
        system.with_cgroups(|tree| tree.set_threads(ask.process, ask.count, ask.asks))
    });
    serve.on_sync(|system, _, ask: CgroupEnter| system.with_cgroups(|tree| tree.enter(ask.process, ask.to, ask.count)));
    answer!(CgroupMove, |system, _from, ask| match process!(system, ask) {
        Some(process) => process.move_to_cgroup(ask.to).await,
        None => Err(Errno::ESRCH),
    });
    answer!(CgroupKill, |system, _from, ask| system.kill_here(ask.processes).await);
    serve.on_sync(|system, from, ask: CgroupDraw| {
        let kernels = system.kernels().len();
        system.with_cgroups(|tree| tree.draw(ask.group, from, kernels))
    });
    answer!(CgroupRoom, |system, _from, ask| system.make_room_in_cgroup(ask).await);
    answer!(CgroupGiveBack, |system, _from, ask| system.give_back_here(ask).await);
    serve.on_sync(|system, from, ask: CgroupReturns| system.with_cgroups(|tree| tree.give_back(from, &ask.given)));
    serve.on_sync(|system, _, ask: CgroupUsage| system.cgroup_usage_here(&ask.groups));
    answer!(CgroupHeaviest, |system, _from, ask| system.heaviest_in_cgroups(&ask.groups));
    answer!(CgroupMembers, |system, _from, ask| system.cgroup_members_here(ask.group));

    answer!(TimerCall, |system, _from, ask| match process!(system, ask) {
        Some(process) => process.timer_here(ask.op).await,
        None => Err(Errno::ESRCH),
    });
    answer!(Barrier, |system, _from, ask| system.barrier_here(&ask));
    serve.on(|system, _, ask: AwaitEnd| async move { system.await_end_here(ask.process).await });

    answer!(DescriptorGet, |system, from, ask| {
        let descriptor = table(&system, ask.table)?.look_up_for(from, ask.fd)?;
        Ok((system.descriptor_transfer.give_away(&descriptor.file, from).await?, descriptor.close_on_exec))
    });
    answer!(DescriptorPut, |system, _from, ask| {
        let file = system.descriptor_transfer.take(ask.file)?;
        let table = table(&system, ask.table)?;
        let fd = match ask.exactly {
            true => table.replace(file, ask.from, ask.close_on_exec, ask.limit).await,
            false => table.add(file, ask.from, ask.close_on_exec, ask.limit).await,
        };
        Ok((fd?, !table.is_shared()))
    });
    answer!(DescriptorPutTwo, |system, _from, ask| {
        let files = (system.descriptor_transfer.take(ask.files.0), system.descriptor_transfer.take(ask.files.1));
        let table = table(&system, ask.table)?;
        let fds = table.add_two([files.0?, files.1?], ask.close_on_exec, ask.limit).await?;
        Ok((fds, !table.is_shared()))
    });
    answer!(DescriptorTake, |system, from, ask| {
        let file = table(&system, ask.table)?.take(ask.fd).await?;
        let given = system.descriptor_transfer.give_away(&file, from).await;
        // Who closes it there waits for what it has itself; what was here is to be gone by then.
        fs::file::close(file).await;
        given
    });
    answer!(DescriptorFlag, |system, _from, ask| {
        table(&system, ask.table)?.set_close_on_exec(ask.fd, ask.close_on_exec).await
    });
    answer!(DescriptorList, |system, from, ask| {
        let mut given = Vec::new();
        let Ok(table) = table(&system, ask.table) else { return given };
        for (fd, descriptor) in table.list().await.unwrap_or_default() {
            if let Ok(file) = system.descriptor_transfer.give_away(&descriptor.file, from).await {
                given.push((fd, file, descriptor.close_on_exec));
            }
        }
        given
    });
    answer!(DescriptorForget, |system, _from, ask| if let Ok(table) = table(&system, ask.table) {
        // Forgotten at once, in the order of the lane; the file's kernel, which never waits to hear of a release, is told then.
        if let Some(descriptor) = table.forget(ask.fd) {
            fs::file::close(descriptor.file).await;
        }
    });
    answer!(NoteIpc, |system, _from, ask| system.note_ipc_here(ask.process, ask.kernel));
    answer!(AskUsage, |system, _from, ask| system.usage_here(ask.process, ask.thread).await);
    answer!(AskHeir, |system, _from, ask| system.heir_here(ask.process));
    answer!(CountThreads, |system, _from, ask| system.threads_of(ask.uid));
    answer!(AskHeaviest, |system, _from, _ask| system.heaviest());
    answer!(EndHeaviest, |system, _from, ask| system.end_heaviest_here(ask.process).await);
    answer!(ProcessLimit, |system, _from, ask| {
        system.limit_here(ask.process, ask.resource, ask.new, &ask.sender, ask.own).await
    });
    answer!(AdjustOom, |system, _from, ask| {
        system.adjust_oom_here(ask.process, ask.adjust, ask.old_file, ask.privileged).await
    });
    answer!(WatchThread, |system, from, ask| system.watch_here(ask.process, ask.thread, from));
    answer!(LeaveLocks, |system, _from, ask| if let Some(process) = process!(system, ask) {
        process.leave_locks_here(ask.thread).await;
    });
    answer!(SpaceUsers, |system, _from, ask| match ask.more {
        true => system.retain_space_here(ask.space, ask.of),
        false => system.release_space_here(ask.space, ask.of).await,
    });
    answer!(ThreadLost, |system, _from, ask| system.thread_lost_here(ask).await);
    answer!(EndUsers, |system, _from, ask| system.end_users(&ask.spaces).await);
    answer!(EndSpace, |system, _from, ask| system.end_space_here(ask.space).await);
    answer!(EndLocks, |system, _from, ask| {
        system.descriptor_transfer.end_locks(&|process| process == ask.process).await;
    });
    // Who asks may die while it waits.
    serve.on(|system, _, ask: Mourned| async move { system.until_mourned(ask.dead).await });
    answer!(SharingGroupMember, |system, _from, ask| system.sharing_group_member_here(ask).await);
    answer!(ChangeSharingGroup, |system, _from, ask| {
        let step = system.step(ask.change)?;
        system.change_sharing_group_here(ask.sharing_group, step).await
    });
    answer!(MakeCounters, |system, from, ask| {
        let mut given = Vec::new();
        for counter in system.make_counters(ask.process, ask.uid, ask.idle_only)? {
            given.push(system.descriptor_transfer.give_away(&counter, from).await?);
        }
        Ok(given)
    });
    answer!(DropCounters, |system, _from, ask| system.drop_counters_here(ask.process));
    answer!(ChangeMember, |system, _from, ask| {
        let step = system.step(ask.change)?;
        process!(system, ask).ok_or(Errno::ESRCH)?.change_member(step).await
    });
    answer!(DescriptorUsers, |system, _from, ask| if let Ok(table) = table(&system, ask.table) {
        table.count_at_home(ask.user, ask.more, ask.ended).await;
    });
}

fn table(system: &System, id: TableId) -> Result<Arc<crate::Files>> {
    crate::Files::find(system, id)
}
