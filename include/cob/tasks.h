/* Tasks on every CPU, also while they wait in the kernel: the C interface of runtime/. docs/umt.md has an example.
 *
 * The environment chooses: COB_TASKS (baseline, umt, umt-idle; on Linux bpf), COB_TASKS_SCHEDULER (fifo, lifo or locality), COB_TASKS_WORKERS_PER_CPU,
 * COB_TASKS_THREADS_PER_CPU (baseline only).
 */
#ifndef COB_TASKS_H
#define COB_TASKS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a task does with bytes that other tasks use. */
enum { COB_IN = 1, COB_OUT = 2, COB_INOUT = 3 };

struct cob_access {
    const void *start;
    size_t bytes;
    int kind;
};

/* Runs main(argument) as a task, and returns 0 when it and all its children have ended; -1 if there can be no runtime. The first call starts the workers. A child of
 * fork has none, and gets -1 too, also from cob_task if a task has forked it; such a child must execute a program or _exit: if it returns from the task it is aborted.
 * A thread must not end itself in a task (pthread_exit). */
int cob_tasks_run(void (*main)(void *), void *argument);

/* Makes a task, as a child of the calling one. It begins when those made before it that use the same bytes have ended (unless both only read them), and runs on any
 * thread. -1: the caller is no task, or a kind is wrong. */
int cob_task(void (*body)(void *), void *argument, const struct cob_access *uses, size_t count, int priority);

/* Waits until all children of the calling task have ended. */
void cob_taskwait(void);

/* 1: the kernel tells the runtime of threads that wait. 0: it does not. -1: there can be no runtime. */
int cob_tasks_monitored(void);

#ifdef __cplusplus
}
#endif
#endif
