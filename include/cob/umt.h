/* User-monitored threads: the kernel tells a task runtime when its threads block and unblock. docs/umt.md explains it.
 *
 * Only Cob has these calls. Elsewhere they answer -1 with errno ENOSYS, and a runtime goes on without.
 */
#ifndef COB_UMT_H
#define COB_UMT_H

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COB_NR_UMT_ENABLE 0xc0b0
#define COB_NR_UMT_CONTROL 0xc0b1

/* Functions of umt_control. Both may be given at once. */
#define UMT_GET 1u
#define UMT_SET 2u

/* Makes a counter for each CPU of the machine and stores their descriptors at fds[0] to fds[result - 1], by the number of the CPU. A counter is a
 * non-blocking eventfd with close-on-exec; what is read from it is split by umt_blocks and umt_unblocks. They count for the calling process, whichever of
 * its threads calls, until it ends or executes a program; a child of fork has none.
 *
 * count: how many descriptors fit at fds, at least the number of CPUs. flags: 0.
 *
 * EINVAL   flags, or count is too small
 * EBUSY    the process has counters
 * EFAULT, EMFILE, ENOMEM   and then it has none
 */
static inline int umt_enable(int *fds, size_t count, unsigned flags) {
    return (int)syscall(COB_NR_UMT_ENABLE, fds, count, flags);
}

/* UMT_GET: stores at *was whether the calling thread is monitored (1 or 0). UMT_SET: from now on the calling thread is monitored (active 1: this counts as an
 * unblock on its CPU) or is not (active 0: as a block). With both, *was is what it was before.
 *
 * EINVAL   another function, or another value of active with UMT_SET
 * ENXIO    the process has no counters
 * EFAULT   was; nothing has changed
 */
static inline int umt_control(unsigned function, unsigned char active, unsigned char *was) {
    return (int)syscall(COB_NR_UMT_CONTROL, function, active, was);
}

/* How often monitored threads have left the CPU because they wait, since the counter was last read. */
static inline uint32_t umt_blocks(uint64_t count) { return (uint32_t)count; }

/* How often monitored threads could use the CPU again. */
static inline uint32_t umt_unblocks(uint64_t count) { return (uint32_t)(count >> 32); }

#ifdef __cplusplus
}
#endif
#endif
