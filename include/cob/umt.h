/* User-monitored threads: the kernel tells a task runtime when its threads block and unblock. docs/umt.md explains it.
 *
 * Only Cob has these calls. Elsewhere they answer -1 with errno ENOSYS, and a runtime goes on without.
 */
#ifndef COB_UMT_H
#define COB_UMT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COB_NR_UMT_ENABLE 0xc0b0
#define COB_NR_UMT_CONTROL 0xc0b1

/* Functions of umt_control. Both may be given at once. */
#define UMT_GET 1u
#define UMT_SET 2u

/* A flag of umt_enable: the descriptor of a CPU can be read only while the CPU has nothing to run and no monitored thread can go on there. A read gives 1 then. */
#define UMT_IDLE 1u

/* Makes a counter for each CPU of the machine and stores their descriptors at fds[0] to fds[result - 1], by the number of the CPU. A counter is a
 * non-blocking eventfd with close-on-exec; what is read from it is split by umt_blocks and umt_unblocks. They count for the calling process, whichever of
 * its threads calls, until it ends or executes a program; a child of fork has none. Sums of the same can be mapped: umt_map.
 *
 * count: how many descriptors fit at fds, at least the number of CPUs. flags: 0 or UMT_IDLE.
 *
 * EINVAL   other flags, or count is too small
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

/* What the descriptor of a CPU maps (mmap, PROT_READ, MAP_SHARED, offset 0): an array of these, by the number of the CPU. Entries of CPUs of other kernels are
 * zero, or past the end (SIGBUS); the descriptors of all CPUs of one kernel map the same array. It is the memory of that kernel itself, wherever the reader
 * runs: a look costs no system call and, once the page was touched, no message. */
struct umt_sums {
    uint64_t sums; /* since umt_enable: blocks in the lower half, unblocks in the upper, each modulo 2^32. To be loaded at once (umt_look). */
    uint64_t reserved[7];
};

/* Maps the entry of a CPU by its descriptor, for as long as the process wants. NULL: it can't be had (errno). */
static inline const struct umt_sums *umt_map(int fd, int cpu) {
    size_t bytes = ((size_t)cpu + 1) * sizeof(struct umt_sums);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    return map == MAP_FAILED ? NULL : (const struct umt_sums *)map + cpu;
}

/* What the kernel has counted so far. Whatever made this thread read a counter's descriptor, or be woken by it, is in there. */
static inline uint64_t umt_look(const struct umt_sums *map) { return __atomic_load_n(&map->sums, __ATOMIC_ACQUIRE); }

/* Monitored threads of the process that can go on on the CPU, from what umt_look has answered. */
static inline int32_t umt_ready(uint64_t sums) { return (int32_t)((uint32_t)(sums >> 32) - (uint32_t)sums); }

/* What came between two looks, as a read of the counter gives it. */
static inline uint64_t umt_since(uint64_t before, uint64_t now) {
    return (uint64_t)((uint32_t)(now >> 32) - (uint32_t)(before >> 32)) << 32 | (uint32_t)((uint32_t)now - (uint32_t)before);
}

/* How often monitored threads have left the CPU because they wait, since the counter was last read. */
static inline uint32_t umt_blocks(uint64_t count) { return (uint32_t)count; }

/* How often monitored threads could use the CPU again. */
static inline uint32_t umt_unblocks(uint64_t count) { return (uint32_t)(count >> 32); }

#ifdef __cplusplus
}
#endif
#endif
