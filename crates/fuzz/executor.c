// Runs programs of system calls (program.rs says how they are stored), each in a process of its own that has no
// privileges, and watches: a program that does nothing more is killed, with all that it has made. Prints `run N` before
// program N; status 0: all ran, 3: something outlived SIGKILL. `executor FILE [TIMES [trace]]`; trace prints all results.
#include <ftw.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <time.h>

// A program that makes no call for so long is over; and so is one that runs for so long.
enum { QUIET_MS = 30, LONGEST_MS = 2000, DYING_MS = 60000, LOOK_MS = 2, MOST_STEPS = 256 };

static const unsigned char *steps[MOST_STEPS];
static int step_count;
static volatile long *progress, *results;

static uint32_t u32(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

static uint64_t u64(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

static const unsigned char *end_of(const unsigned char *step) {
    const unsigned char *at = step + 8 + 6 * 16;
    for (int i = 0; i < step[4]; i++)
        at += 8 + u32(at + 4);
    return at + 8 * (step[5] + step[6]);
}

static void index_steps(const unsigned char *program) {
    step_count = (int)u32(program + 4);
    const unsigned char *at = program + 8;
    for (int i = 0; i < step_count; i++) {
        steps[i] = at;
        at = end_of(at);
    }
}

static void act(int actor);
#define PART(n)                                                                                                      \
    static void part##n(void) { act(n); }
PART(0) PART(1) PART(2) PART(3) PART(4) PART(5) PART(6) PART(7)
static void (*const parts[ACTORS])(void) = {part0, part1, part2, part3, part4, part5, part6, part7};

static int gives_birth(int number) {
    return number == SYS_clone || number == SYS_fork || number == SYS_vfork || number == SYS_clone3;
}

static void do_step(int index) {
    const unsigned char *step = steps[index], *at = step + 8 + 6 * 16;
    int number = step[2] | step[3] << 8, birth = step[1];
    long arguments[6];
    for (int i = 0; i < 6; i++) {
        long value = (long)u64(step + 8 + 16 * i + 8);
        arguments[i] = u64(step + 8 + 16 * i) ? slot[value & 255] : value;
    }
    for (int i = 0; i < step[4]; i++) {
        memcpy((void *)(ARENA + u32(at)), at + 8, u32(at + 4));
        at += 8 + u32(at + 4);
    }
    for (int i = 0; i < step[5]; i++, at += 8)
        memcpy((void *)(ARENA + u32(at)), (void *)&slot[at[5]], at[4]);
    __atomic_fetch_add(progress, 1, __ATOMIC_RELAXED);
    long result;
#define A arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]
    if (gives_birth(number))
        result = birth < ACTORS ? born(birth, parts[birth], number, A) : born(0, nobody, number, A);
    else
        result = syscall(number, A);
    results[index] = result == -1 ? -errno : result;
    if (result == -1)
        return;
    for (int i = 0; i < step[6]; i++, at += 8) {
        void *from = (void *)(ARENA + u32(at));
        slot[at[5]] = u32(at) == 0xffffffff ? result : at[4] == 4 ? *(int *)from : *(long *)from;
    }
}

static void act(int actor) {
    for (int i = 0; i < step_count; i++)
        if (steps[i][0] == actor)
            do_step(i);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *walk) {
    (void)stat, (void)walk;
    return type == FTW_DP ? rmdir(path) : unlink(path), 0;
}

static void wait_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, 0);
}

// Waits for whatever has ended; false if nobody is left.
static int reap(void) {
    pid_t pid;
    while ((pid = waitpid(-1, 0, WNOHANG | __WALL)) > 0)
        ;
    return pid == 0;
}

static void kill_all(void) {
    pid_t killer = fork();
    if (killer == 0) {
        // All that one may signal but oneself, and the kernel's process 1.
        if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
            _exit(99);
        kill(-1, SIGKILL);
        _exit(0);
    }
}

static void clean(void) {
    nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    unlink("/dev/shm/m0");
    rmdir("/dev/shm/m0");
    // Each of these answers the highest index in use.
    char ignored[4096];
    for (int id, i = shmctl(0, SHM_INFO, (void *)ignored); i >= 0; i--)
        if ((id = shmctl(i, SHM_STAT, (void *)ignored)) >= 0)
            shmctl(id, IPC_RMID, 0);
    for (int id, i = semctl(0, 0, SEM_INFO, ignored); i >= 0; i--)
        if ((id = semctl(i, 0, SEM_STAT, ignored)) >= 0)
            semctl(id, 0, IPC_RMID);
    for (int id, i = msgctl(0, MSG_INFO, (void *)ignored); i >= 0; i--)
        if ((id = msgctl(i, MSG_STAT, (void *)ignored)) >= 0)
            msgctl(id, IPC_RMID, 0);
}

// False if something could not be killed.
static int run(const unsigned char *program) {
    index_steps(program);
    memcpy(directory + sizeof directory - 7, "XXXXXX", 6);
    make_directory();
    for (int i = 0; i < step_count; i++)
        results[i] = -4095;
    if (fork() == 0) {
        // A group of its own: one that is orphaned while a member is stopped hears SIGHUP (man 2 setpgid), and this process is not to.
        setpgid(0, 0);
        prepare();
        act(0);
        syscall(SYS_exit, 0);
    }
    long seen = *progress;
    int quiet = 0, ran = 0, dying = 0;
    while (reap()) {
        wait_ms(LOOK_MS);
        quiet = seen == *progress ? quiet + LOOK_MS : 0;
        seen = *progress;
        ran += LOOK_MS;
        if (quiet < QUIET_MS && ran < LONGEST_MS)
            continue;
        // Those born meanwhile need another kill.
        if (dying % 100 == 0)
            kill_all();
        dying += LOOK_MS;
        if (dying > DYING_MS)
            return 0;
    }
    clean();
    return 1;
}

int main(int argc, char **argv) {
    // A program may execute this; it has no business here.
    if (argc < 2 || geteuid() != 0)
        return 98;
    int file = open(argv[1], O_RDONLY), times = argc > 2 ? atoi(argv[2]) : 1, trace = argc > 3;
    struct stat stat;
    if (file < 0 || fstat(file, &stat))
        return 97;
    unsigned char *bytes = malloc(stat.st_size);
    for (long have = 0, got; have < stat.st_size; have += got)
        if ((got = read(file, bytes + have, stat.st_size - have)) <= 0)
            return 97;
    close(file);
    share();
    progress = (volatile long *)(is_born + 0x800);
    results = (volatile long *)(is_born + 0x1000);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    setvbuf(stdout, 0, _IOLBF, BUFSIZ);
    int number = 0;
    for (int time = 0; time < times; time++)
        for (long at = 0; at < stat.st_size; number++) {
            long length = u32(bytes + at);
            printf("run %d\n", number);
            if (!run(bytes + at + 4)) {
                printf("survivor\n");
                return 3;
            }
            for (int i = 0; trace && i < step_count; i++)
                printf("%d %d %ld\n", i, steps[i][2] | steps[i][3] << 8, results[i]);
            at += 4 + length;
        }
    printf("calls %ld\n", *progress);
    return 0;
}
