// Wild pointers everywhere: an errno, or a signal to the program, and never more.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <poll.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/utsname.h>

int main(void) {
    void *wild[] = {(void *)8, (void *)0x7fffffffffff, (void *)0xffff888000000000, (void *)-1L};
    char *read_only = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *edge = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // Last: any later mmap may be given this page.
    MUST(munmap(edge + PAGE, PAGE) == 0);
    int zero = open("/dev/zero", O_RDONLY), file = open("file", O_CREAT | O_RDWR, 0600), ends[2];
    MUST(pipe(ends) == 0);
    MUST(write(file, "0123456789", 10) == 10);
    for (int i = 0; i < 4; i++) {
        void *p = wild[i];
        printf("-- %d\n", i);
        SHOW(syscall(SYS_write, ends[1], p, 10));
        SHOW(syscall(SYS_pread64, file, p, 10, 0));
        SHOW(syscall(SYS_pwrite64, file, p, 10, 0));
        SHOW(syscall(SYS_read, zero, p, 10));
        // What these devices are told they do not look at; random does.
        for (int device = 0; device < 4; device++) {
            int fd = open((const char *[]){"/dev/null", "/dev/zero", "/dev/full", "/dev/random"}[device], O_RDWR);
            struct iovec two[2] = {{p, 10}, {p, 20}};
            SHOW(syscall(SYS_write, fd, p, 10));
            SHOW(syscall(SYS_pwrite64, fd, p, 10, 5));
            SHOW(syscall(SYS_writev, fd, two, 2));
            close(fd);
        }
        SHOW(syscall(SYS_open, p, 0));
        SHOW(syscall(SYS_stat, "file", p));
        SHOW(syscall(SYS_fstat, file, p));
        SHOW(syscall(SYS_access, p, 0));
        SHOW(syscall(SYS_readlink, "/proc/self/exe", p, 10));
        SHOW(syscall(SYS_getcwd, p, 4096));
        SHOW(syscall(SYS_chdir, p));
        SHOW(syscall(SYS_pipe, p));
        SHOW(syscall(SYS_poll, p, 1, 0));
        SHOW(syscall(SYS_select, 5, p, NULL, NULL, NULL));
        SHOW(syscall(SYS_readv, file, p, 1));
        SHOW(syscall(SYS_uname, p));
        SHOW(syscall(SYS_sysinfo, p));
        SHOW(syscall(SYS_times, p));
        SHOW(syscall(SYS_getrusage, 0, p));
        SHOW(syscall(SYS_getrlimit, 0, p));
        SHOW(syscall(SYS_nanosleep, p, NULL));
        SHOW(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, p));
        SHOW(syscall(SYS_gettimeofday, p, NULL));
        SHOW(syscall(SYS_rt_sigaction, SIGUSR1, p, NULL, 8));
        SHOW(syscall(SYS_rt_sigprocmask, 0, p, NULL, 8));
        SHOW(syscall(SYS_sigaltstack, p, NULL));
        SHOW(syscall(SYS_sched_setaffinity, 0, 128, p));
        SHOW(syscall(SYS_sched_getaffinity, 0, 128, p));
        SHOW(syscall(SYS_execve, p, NULL, NULL));
        SHOW(syscall(SYS_getrandom, p, 16, 0));
        SHOW(syscall(SYS_getdents64, open("/", O_RDONLY | O_DIRECTORY), p, 1000));
        SHOW(syscall(SYS_epoll_wait, file, p, 1, 0));
        SHOW(syscall(SYS_getgroups, 65536, p));
    }
    struct iovec mixed[2] = {{edge, 4}, {(void *)8, 4}};
    memset(edge, 'e', PAGE);
    SHOW(writev(file, mixed, 2));
    SHOW(write(file, edge + PAGE - 5, 10));
    SHOW(write(file, edge + PAGE - 5, 5));
    SHOW(pread(file, read_only, 4, 0));
    SHOW(read(zero, edge + PAGE - 4, 8));
    strcpy(edge + PAGE - 5, "file");
    SHOW(access(edge + PAGE - 5, F_OK));
    memcpy(edge + PAGE - 4, "file", 4);
    SHOW(access(edge + PAGE - 4, F_OK));
    SHOW(pread(file, edge, -1, 0));
    SHOW(write(file, edge, 0));
    SHOW(write(file, (void *)8, 0));
    SHOW(syscall(SYS_rt_sigprocmask, 0, edge, NULL, 7));
    SHOW(syscall(100000, 1, 2, 3));
    SHOW(syscall(-1L));
    IN_CHILD("stack pointer wild", __asm__ volatile("mov $8, %rsp; push %rax"));
    IN_CHILD("signal without a stack", {
        signal(SIGUSR1, (void (*)(int))main);
        __asm__ volatile("mov $8, %%rsp; syscall" ::"a"(SYS_kill), "D"(getpid()), "S"(SIGUSR1));
    });
    IN_CHILD("return from no signal", syscall(SYS_rt_sigreturn));
}
