// Bad input to the calls about processes, signals, ids, limits and scheduling (see errnos.h).
// cob: link=static kernels=1,4 compare=host timeout=600
#include "errnos.h"
#include <limits.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <ucontext.h>

#ifndef SCHED_FLAG_ALL
#define SCHED_FLAG_ALL 0x7f
#endif

static siginfo_t queued = {.si_code = SI_QUEUE}, user_code = {.si_code = SI_USER}, kernel_code = {.si_code = SI_KERNEL},
                 tkill_code = {.si_code = SI_TKILL};
static struct __user_cap_header_struct capabilities = {_LINUX_CAPABILITY_VERSION_3, 0}, capabilities_dead = {_LINUX_CAPABILITY_VERSION_3, 4194303},
                                       capabilities_old = {0x12345, 0}, capabilities_negative = {_LINUX_CAPABILITY_VERSION_3, -1},
                                       capabilities_other = {_LINUX_CAPABILITY_VERSION_3, 1};
static struct __user_cap_data_struct too_many[2] = {{-1, 0, -1}, {-1, 0, -1}};
static struct rlimit upside_down = {2, 1}, low_files = {4, 4};
static struct {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
} clone_unknown = {.flags = 1UL << 40}, clone_signal = {.flags = CLONE_VM, .exit_signal = 65}, clone_sighand = {.flags = CLONE_SIGHAND},
  clone_thread = {.flags = CLONE_THREAD}, clone_stack = {.stack = GOOD}, clone_stack_size = {.stack_size = 4096},
  clone_old_signal = {.flags = 17}, clone_fs = {.flags = CLONE_FS | CLONE_NEWNS}, clone_clear = {.flags = CLONE_CLEAR_SIGHAND | CLONE_SIGHAND | CLONE_VM},
  clone_tids = {.set_tid = GOOD}, clone_tids_size = {.set_tid_size = 1}, clone_many_tids = {.set_tid = GOOD, .set_tid_size = 33},
  clone_parent_signal = {.flags = CLONE_PARENT, .exit_signal = 17};
static struct sched_param no_priority, some_priority = {1}, negative_priority = {-1}, high_priority = {100};
static struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} normal = {48, 0, 0, 0, 0, 0, 0, 0}, small = {40, 0, 0, 0, 0, 0, 0, 0}, no_size, unknown_policy = {48, 77, 0, 0, 0, 0, 0, 0},
  unknown_flag = {48, 0, 1UL << 40, 0, 0, 0, 0, 0}, nice_low = {48, 0, 0, -100, 0, 0, 0, 0}, priority_normal = {48, 0, 0, 0, 5, 0, 0, 0},
  fifo_zero = {48, 1, 0, 0, 0, 0, 0, 0};
static stack_t small_stack = {.ss_sp = (void *)GOOD, .ss_size = 100}, bad_stack_flags = {.ss_sp = (void *)GOOD, .ss_flags = 77, .ss_size = 65536},
               disabled_stack = {.ss_flags = SS_DISABLE};
static uint64_t kill_and_stop = 1 << 8 | 1 << 18, no_cpus[16], far_cpus[16] = {[15] = 1}, all_cpus[16] = {-1, -1};

static void take(int signal) {}

// A signal comes again and again.
static void ticks(int flags, void (*handler)(int)) {
    if (handler)
        sigaction(SIGALRM, &(struct sigaction){.sa_handler = handler, .sa_flags = flags}, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 1000}, {0, 1000}}, NULL);
}

static void taken_ticks(void) { ticks(0, take); }
static void restarting_ticks(void) { ticks(SA_RESTART, take); }
static void fatal_ticks(void) { ticks(0, NULL); }

// A user who may have no process.
static void no_processes(void) {
    MUST(setrlimit(RLIMIT_NPROC, &(struct rlimit){0, 0}) == 0);
    MUST(setresgid(65432, 65432, 65432) == 0 && setresuid(65432, 65432, 65432) == 0);
}

// What a handler may leave behind for the return from its signal.
static long return_to, pass_flags, floating_point;
static int selector = -1;

static void spoil(int signal, siginfo_t *info, void *where) {
    ucontext_t *context = where;
    if (return_to)
        context->uc_mcontext.gregs[REG_RIP] = return_to;
    if (floating_point)
        context->uc_mcontext.fpregs = (void *)floating_point;
    if (selector >= 0)
        context->uc_mcontext.gregs[REG_CSGSFS] = selector;
    context->uc_mcontext.gregs[REG_EFL] |= pass_flags;
}

static void spoiled_signal(void) {
    sigaction(SIGUSR1, &(struct sigaction){.sa_sigaction = spoil, .sa_flags = SA_SIGINFO}, NULL);
    raise(SIGUSR1);
}

static void to_kernel(void) { return_to = 0xffff888000000000, spoiled_signal(); }
static void to_hole(void) { return_to = 0x8000000000000000, spoiled_signal(); }
static void to_data(void) { return_to = GOOD, spoiled_signal(); }
static void low_floats(void) { floating_point = 8, spoiled_signal(); }
static void kernel_floats(void) { floating_point = 0xffff888000000000, spoiled_signal(); }
static void hole_floats(void) { floating_point = 0x8000000000000000, spoiled_signal(); }
// Privileged input and output, nested task, virtual 8086: Linux passes none of them on.
static void wild_flags(void) { pass_flags = 3 << 12 | 1 << 14 | 1 << 17, spoiled_signal(); }
static void no_selector(void) { selector = 0, spoiled_signal(); }
static void kernel_selector(void) { selector = 0x10, spoiled_signal(); }

// A program that lives on after a fault.
static char other_stack[65536];

static void leave(int signal) { _exit(7); }

static void catch_faults(void) {
    MUST(sigaltstack(&(stack_t){.ss_sp = other_stack, .ss_size = sizeof other_stack}, NULL) == 0);
    MUST(sigaction(SIGSEGV, &(struct sigaction){.sa_handler = leave, .sa_flags = SA_ONSTACK}, NULL) == 0);
}

static void catch_low_floats(void) { catch_faults(), low_floats(); }
static void catch_selector(void) { catch_faults(), no_selector(); }
static void catch_to_kernel(void) { catch_faults(), to_kernel(); }

static const struct row rows[] = {
    // These end with a child each.
    ROW(exit, E(3)),
    ROW(exit, C(256)),
    ROW(exit_group, E(3)),
    ROW(exit_group, C(511)),
    ANY(fork, C(0)),
    ANY(vfork, C(0)),
    AFTER(no_processes, fork, C(0)),
    AFTER(no_processes, vfork, C(0)),
    AFTER(no_processes, clone, C(SIGCHLD), C(0), C(0), C(0), C(0)),
    AFTER(taken_ticks, pause, C(0)),
    AFTER(restarting_ticks, pause, C(0)),
    AFTER(fatal_ticks, pause, C(0)),
    AFTER(taken_ticks, rt_sigsuspend, C(GOOD), C(8)),
    ROW(rt_sigsuspend, C(0), N(8)),
    ROW(rt_sigsuspend, C(0xffff888000000000), C(8)),
    ROW(rt_sigsuspend, C(BORDER + PAGE - 1), C(8)),
    // The frame begins a word below.
    ROW(rt_sigreturn, {'w', GOOD + 8}),
    ROW(rt_sigreturn, {'w', GOOD + PAGE + 8}),
    AFTER(catch_faults, rt_sigreturn, C(GOOD + 8)),
    AFTER(catch_faults, rt_sigreturn, C(8)),
    AFTER(catch_low_floats, sched_yield, C(0)),
    AFTER(catch_selector, sched_yield, C(0)),
    AFTER(catch_to_kernel, sched_yield, C(0)),
    AFTER(to_kernel, sched_yield, C(0)),
    AFTER(to_hole, sched_yield, C(0)),
    AFTER(to_data, sched_yield, C(0)),
    AFTER(low_floats, sched_yield, C(0)),
    AFTER(kernel_floats, sched_yield, C(0)),
    AFTER(hole_floats, sched_yield, C(0)),
    AFTER(wild_flags, sched_yield, C(0)),
    AFTER(no_selector, sched_yield, C(0)),
    AFTER(kernel_selector, sched_yield, C(0)),
    ROW(rt_sigaction, X(10), Z, W, N(8)),
    ROW(rt_sigaction, C(9), Z, C(0), C(8)),
    ROW(rt_sigaction, C(9), C(0), W, C(8)),
    ROW(rt_sigaction, C(65), Z, C(0), C(8)),
    ROW(rt_sigprocmask, X(0), Z, W, N(8)),
    ROW(rt_sigprocmask, C(77), C(0), W, C(8)),
    ROW(rt_sigprocmask, C(77), C(8), W, C(7)),
    ROW(rt_sigprocmask, C(0), C(&kill_and_stop), W, C(8)),
    ROW(rt_sigpending, W, N(8)),
    ROW(rt_sigtimedwait, Z, W, T, N(8)),
    ROW(rt_sigsuspend, C(8), N(8)),
    ROW(rt_sigqueueinfo, SELF, E(0), AT(&queued)),
    ROW(rt_sigqueueinfo, SELF, C(0), AT(&user_code)),
    ROW(rt_sigqueueinfo, P(1), C(0), C(&user_code)),
    ROW(rt_sigqueueinfo, P(1), C(0), C(&kernel_code)),
    ROW(rt_sigqueueinfo, P(1), C(0), C(&tkill_code)),
    ROW(rt_sigqueueinfo, P(1), C(0), C(&queued)),
    ROW(rt_tgsigqueueinfo, SELF, SELF, E(0), AT(&queued)),
    ROW(rt_tgsigqueueinfo, SELF, C(0), C(0), C(&queued)),
    ROW(rt_tgsigqueueinfo, C(1), SELF, C(0), C(&queued)),
    ROW(sigaltstack, Z, W),
    ROW(sigaltstack, C(&small_stack), W),
    ROW(sigaltstack, C(&bad_stack_flags), W),
    ROW(sigaltstack, C(&disabled_stack), W),
    ROW(kill, SELF, E(0)),
    ROW(kill, C(0), C(0)),
    ROW(kill, C(0), C(65)),
    ROW(tkill, SELF, E(0)),
    ROW(tgkill, SELF, SELF, E(0)),
    ROW(tgkill, C(1), SELF, C(0)),
    ROW(wait4, E(0), W, X(1), W),
    ROW(wait4, P(-1), W, C(0), C(0)),
    ROW(waitid, E(0), P(0), W, C(5), W),
    ROW(waitid, C(0), C(0), W, X(5), W),
    ROW(waitid, C(0), C(0), W, C(1), W),
    ROW(waitid, C(1), P(0), W, C(5), C(0)),
    ROW(waitid, C(2), P(0), W, C(5), C(0)),
    ROW(waitid, C(3), F(PIDFD), W, C(5), C(0)),
    ANY(getpgid, SELF),
    ANY(getsid, SELF),
    ROW(setpgid, SELF, P(0)),
    ROW(setpgid, C(0), SELF),
    ROW(setpgid, C(1), C(0)),
    ROW(setpgid, C(0), C(1)),
    ROW(setsid, C(0)),
    ROW(getpriority, E(0), SELF),
    ROW(getpriority, C(1), P(0)),
    // The highest of all that root runs: not the test's to know.
    ANY(getpriority, C(2), P(0)),
    ROW(setpriority, E(0), SELF, C(1)),
    ROW(setpriority, C(1), P(0), C(1)),
    ROW(setpriority, C(0), SELF, C(100)),
    ROW(setpriority, C(0), SELF, C(-100)),
    ROW(sched_getaffinity, SELF, N(0), W),
    ROW(sched_getaffinity, SELF, C(4), W),
    ROW(sched_getaffinity, SELF, C(12), W),
    ROW(sched_setaffinity, SELF, N(128), AT(all_cpus)),
    ROW(sched_setaffinity, SELF, C(128), C(no_cpus)),
    ROW(sched_setaffinity, SELF, C(128), C(far_cpus)),
    ROW(sched_getscheduler, SELF),
    ROW(sched_setscheduler, SELF, E(0), AT(&no_priority)),
    ROW(sched_setscheduler, SELF, C(0), C(&some_priority)),
    ROW(sched_setscheduler, SELF, C(1), C(&no_priority)),
    ROW(sched_setscheduler, SELF, C(1), C(&high_priority)),
    ROW(sched_setscheduler, SELF, C(2), C(&negative_priority)),
    ROW(sched_setscheduler, SELF, C(3), C(&no_priority)),
    ROW(sched_setscheduler, SELF, C(4), C(&no_priority)),
    ROW(sched_setscheduler, SELF, C(5), C(&some_priority)),
    ROW(sched_getparam, SELF, W),
    ROW(sched_setparam, SELF, AT(&no_priority)),
    ROW(sched_setparam, SELF, C(&some_priority)),
    ROW(sched_get_priority_max, E(0)),
    ROW(sched_get_priority_max, C(1)),
    ROW(sched_get_priority_max, C(4)),
    ROW(sched_get_priority_max, C(6)),
    ROW(sched_get_priority_min, E(0)),
    ROW(sched_get_priority_min, C(1)),
    ROW(sched_rr_get_interval, SELF, W),
    ROW(sched_getattr, SELF, W, N(56), E(0)),
    ROW(sched_getattr, SELF, W, C(47), C(0)),
    ROW(sched_getattr, SELF, W, C(48), C(0)),
    ROW(sched_getattr, SELF, W, C(4097), C(0)),
    ROW(sched_setattr, SELF, AT(&normal), X(0)),
    ROW(sched_setattr, SELF, C(&small), C(0)),
    ROW(sched_setattr, SELF, C(&no_size), C(0)),
    ROW(sched_setattr, SELF, C(&unknown_policy), C(0)),
    ROW(sched_setattr, SELF, C(&unknown_flag), C(0)),
    ROW(sched_setattr, SELF, C(&nice_low), C(0)),
    ROW(sched_setattr, SELF, C(&priority_normal), C(0)),
    ROW(sched_setattr, SELF, C(&fifo_zero), C(0)),
    ROW(sched_yield, C(0)),
    ROW(getrlimit, E(0), W),
    ROW(getrlimit, C(15), W),
    ROW(getrlimit, C(16), W),
    ROW(setrlimit, C(7), AT(&low_files)),
    ROW(setrlimit, C(7), C(&upside_down)),
    ROW(setrlimit, C(16), C(&low_files)),
    ROW(setrlimit, C(-1), C(8)),
    ROW(prlimit64, SELF, E(0), C(0), W),
    ROW(prlimit64, SELF, C(7), AT(&low_files), W),
    ROW(prlimit64, SELF, C(7), C(&upside_down), W),
    ROW(prlimit64, SELF, C(16), C(8), C(0)),
    ROW(getrusage, E(0), W),
    ROW(getrusage, C(1), W),
    ROW(getrusage, C(-2), W),
    ROW(getgroups, N(100), W),
    ROW(getgroups, C(0), C(8)),
    ROW(setgroups, C(0), R),
    ROW(setgroups, C(1), R),
    ROW(setgroups, C(65537), R),
    ROW(setgroups, C(-1), R),
    ROW(getresuid, W, W, W),
    ROW(getresgid, W, W, W),
    ROW(setuid, C(-1)),
    ROW(setgid, C(-1)),
    ROW(setreuid, C(-1), C(-1)),
    ROW(setregid, C(-1), C(-1)),
    ROW(setresuid, C(-1), C(-1), C(-1)),
    ROW(setresgid, C(-1), C(-1), C(-1)),
    ROW(setfsuid, C(-1)),
    ROW(setfsgid, C(-1)),
    ROW(getuid, C(0)),
    ROW(getgid, C(0)),
    ROW(geteuid, C(0)),
    ROW(getegid, C(0)),
    ROW(capget, AT(&capabilities), W),
    ROW(capget, C(&capabilities), C(0)),
    ROW(capget, C(&capabilities_dead), W),
    ROW(capget, C(&capabilities_negative), W),
    ROW(capget, C(&capabilities_old), W),
    ROW(capget, C(&capabilities_old), C(0)),
    ROW(capget, C(&capabilities_old), C(8)),
    ROW(capset, AT(&capabilities), Z),
    ROW(capset, C(&capabilities), C(too_many)),
    ROW(capset, C(&capabilities_dead), Z),
    ROW(capset, C(&capabilities_negative), Z),
    ROW(capset, C(&capabilities_other), Z),
    ROW(capset, C(&capabilities_old), Z),
    ROW(uname, W),
    ROW(sysinfo, W),
    // A length that would do would change the host's name.
    ROW(sethostname, R, C(-1)),
    ROW(sethostname, R, C(65)),
    ROW(sethostname, C(8), C(5)),
    ROW(setdomainname, R, C(-1)),
    ROW(setdomainname, R, C(65)),
    ROW(setdomainname, C(8), C(5)),
    ROW(getrandom, W, N(10), X(0)),
    ROW(getcpu, W, W, C(0)),
    ROW(prctl, C(PR_GET_NAME), W),
    ROW(prctl, C(PR_SET_NAME), R),
    ROW(prctl, C(PR_SET_PDEATHSIG), C(65)),
    ROW(prctl, C(PR_SET_PDEATHSIG), C(-1)),
    ROW(prctl, C(PR_GET_PDEATHSIG), W),
    ROW(prctl, C(PR_SET_DUMPABLE), C(2)),
    ROW(prctl, C(PR_SET_DUMPABLE), C(3)),
    ROW(prctl, C(PR_SET_KEEPCAPS), C(2)),
    ROW(prctl, C(PR_SET_NO_NEW_PRIVS), C(2), C(0), C(0), C(0)),
    ROW(prctl, C(PR_SET_NO_NEW_PRIVS), C(1), C(1), C(0), C(0)),
    ROW(prctl, C(PR_GET_NO_NEW_PRIVS), C(1), C(0), C(0), C(0)),
    ROW(prctl, C(PR_CAPBSET_READ), C(64)),
    ROW(prctl, C(PR_CAPBSET_READ), C(-1)),
    ROW(prctl, C(PR_CAPBSET_DROP), C(64)),
    ROW(prctl, C(PR_GET_CHILD_SUBREAPER), W),
    ROW(prctl, C(PR_GET_TID_ADDRESS), W),
    ROW(prctl, C(PR_SET_TIMERSLACK), C(-1)),
    ROW(prctl, C(-1)),
    ROW(prctl, C(1000)),
    ROW(arch_prctl, C(0x1003), W),
    ROW(arch_prctl, C(0x1004), W),
    ROW(arch_prctl, C(0x1002), C(0xffff888000000000)),
    ROW(arch_prctl, C(0x1001), C(0x8000000000000000)),
    ROW(arch_prctl, C(0x9999), W),
    ROW(personality, C(-1)),
    // PIDFD_THREAD is not there: see docs/limits.md.
    ROW(pidfd_open, SELF, E(0)),
    ROW(pidfd_send_signal, F(PIDFD), E(0), C(0), C(0)),
    ROW(pidfd_send_signal, F(PIDFD), C(0), AT(&queued), C(0)),
    ROW(pidfd_send_signal, F(PIDFD), C(0), C(&user_code), C(0)),
    ROW(pidfd_send_signal, F(PIDFD), C(0), C(0), C(1 << 20)),
    ROW(pidfd_send_signal, F(PIDFD), C(0), C(8), C(1 << 20)),
    ROW(pidfd_getfd, F(PIDFD), F(FILE_FD), X(0)),
    // Namespaces are left out.
    ROW(unshare, C(0)),
    ROW(unshare, C(0x400)),
    ROW(unshare, C(0x200)),
    ROW(unshare, C(CLONE_SIGHAND)),
    ROW(unshare, C(CLONE_VM)),
    ROW(unshare, C(CLONE_THREAD)),
    ROW(unshare, C(1)),
    ROW(unshare, C(-1)),
    ROW(unshare, C(CLONE_PARENT)),
    ROW(clone, C(CLONE_SIGHAND), C(0), C(0), C(0), C(0)),
    ROW(clone, C(CLONE_THREAD | CLONE_VM), C(0), C(0), C(0), C(0)),
    ROW(clone, C(CLONE_THREAD), C(0), C(0), C(0), C(0)),
    ROW(clone, C(CLONE_FS | CLONE_NEWNS), C(0), C(0), C(0), C(0)),
    ROW(clone, C(CLONE_PIDFD | CLONE_PARENT_SETTID), C(0), C(8), C(0), C(0)),
    ROW(clone, C(CLONE_PIDFD | CLONE_DETACHED), C(0), W, C(0), C(0)),
    ROW(clone, C(CLONE_PIDFD), C(0), C(8), C(0), C(0)),
    ROW(clone3, Z, C(63)),
    ROW(clone3, Z, C(-1)),
    ROW(clone3, Z, C(4097)),
    ROW(clone3, Z, C(0)),
    ROW(clone3, C(8), C(88)),
    ROW(clone3, C(0xffff888000000000), C(88)),
    ROW(clone3, AT(BORDER + PAGE - 88), C(96)),
    ROW(clone3, C(&clone_unknown), C(88)),
    ROW(clone3, C(&clone_signal), C(88)),
    ROW(clone3, C(&clone_sighand), C(88)),
    ROW(clone3, C(&clone_thread), C(88)),
    ROW(clone3, C(&clone_stack), C(88)),
    ROW(clone3, C(&clone_stack_size), C(88)),
    ROW(clone3, C(&clone_old_signal), C(88)),
    ROW(clone3, C(&clone_fs), C(88)),
    ROW(clone3, C(&clone_clear), C(88)),
    ROW(clone3, C(&clone_tids), C(88)),
    ROW(clone3, C(&clone_tids_size), C(88)),
    ROW(clone3, C(&clone_many_tids), C(88)),
    ROW(clone3, C(&clone_parent_signal), C(88)),
    ROW(set_robust_list, C(0), N(24)),
    ROW(get_robust_list, SELF, W, W),
    ANY(set_tid_address, C(0)),
    ANY(set_tid_address, C(8)),
    ROW(rseq, A, N(32), X(7), C(0)),
    ANY(getpid, C(0)),
    ANY(getppid, C(0)),
    ANY(gettid, C(0)),
    ANY(getpgrp, C(0)),
};

int main(int argc, char **argv) { return show_table(rows, sizeof rows / sizeof rows[0], argv + 1); }
