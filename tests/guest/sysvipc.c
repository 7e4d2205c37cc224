// System V IPC: keys, permissions, shared memory, semaphores (blocking, undo, all or nothing), message queues; the
// processes sit on different CPUs. Ids differ from run to run and are not shown.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#ifndef MSG_COPY
#define MSG_COPY 040000
#endif
#ifndef MSG_EXCEPT
#define MSG_EXCEPT 020000
#endif

union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
};

static int key_base;

static void on(int cpu) { move_to(cpu % cpu_count()); }

static int op(int set, int number, int change, int flags) {
    struct sembuf one = {number, change, flags};
    return semop(set, &one, 1);
}

static int get(int set, int number) { return semctl(set, number, GETVAL); }

static void wait_value(int set, int number, int command, int wanted) {
    while (semctl(set, number, command) != wanted)
        sched_yield();
}

static void memory(void) {
    TRY(shmget(key_base, 4096, 0));
    int id = shmget(key_base, 3 * PAGE - 100, IPC_CREAT | IPC_EXCL | 0640);
    MUST(id >= 0);
    TRY(shmget(key_base, 4096, IPC_CREAT | IPC_EXCL | 0640));
    printf("same %d\n", shmget(key_base, 4096, IPC_CREAT | 0600) == id);
    TRY(shmget(key_base, 4 * PAGE, 0));
    TRY(shmget(IPC_PRIVATE, 0, IPC_CREAT | 0600));
    int *words = shmat(id, NULL, 0);
    MUST(words != (void *)-1);
    struct shmid_ds status;
    MUST(shmctl(id, IPC_STAT, &status) == 0);
    printf("size %zu mode %o attached %lu creator %d last %d key %d\n", status.shm_segsz, status.shm_perm.mode,
           status.shm_nattch, status.shm_cpid == getpid(), status.shm_lpid == getpid(),
           status.shm_perm.__key == key_base);
    words[0] = 5;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        on(cpu_count() - 1);
        MUST(shmctl(id, IPC_STAT, &status) == 0);
        printf("child: word %d attached %lu\n", words[0], status.shm_nattch);
        int other = shmget(key_base, 0, 0);
        volatile int *again = shmat(other, NULL, SHM_RDONLY);
        MUST(again != (void *)-1);
        words[1] = 7;
        words[2 * PAGE / 4] = 9;
        printf("child: again %d %d\n", again[0], again[1]);
        SHOW(mprotect((void *)again, PAGE, PROT_READ | PROT_WRITE));
        MUST(shmctl(id, IPC_STAT, &status) == 0);
        printf("child: attached %lu\n", status.shm_nattch);
        SHOW(shmdt((void *)again));
        SHOW(shmdt((void *)again));
        SHOW(shmdt((char *)words + PAGE));
        MUST(shmctl(id, IPC_STAT, &status) == 0);
        printf("child: attached %lu last %d\n", status.shm_nattch, status.shm_lpid == getpid());
        fflush(stdout);
        _exit(0);
    }
    MUST(waitpid(child, NULL, 0) == child);
    MUST(shmctl(id, IPC_STAT, &status) == 0);
    printf("parent: %d %d attached %lu\n", words[1], words[2 * PAGE / 4], status.shm_nattch);
    MUST(munmap((char *)words + PAGE, PAGE) == 0);
    MUST(shmctl(id, IPC_STAT, &status) == 0);
    printf("cut: attached %lu\n", status.shm_nattch);
    SHOW(shmdt(words));
    MUST(shmctl(id, IPC_STAT, &status) == 0);
    printf("detached: attached %lu\n", status.shm_nattch);
    // At a place of its own, rounded, replacing.
    char *place = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("taken: %s\n", shmat(id, place, 0) == (void *)-1 ? error_name(errno) : "done");
    printf("odd: %s\n", shmat(id, place + 1, 0) == (void *)-1 ? error_name(errno) : "done");
    printf("replace: %d\n", shmat(id, place, SHM_REMAP) == place);
    printf("value %d\n", ((int *)place)[1]);
    printf("replace nowhere: %s\n", shmat(id, NULL, SHM_REMAP) == (void *)-1 ? error_name(errno) : "done");
    munmap(place + 3 * PAGE, 5 * PAGE);
    printf("round: %d\n", shmat(id, place + 3 * PAGE + 5, SHM_RND) == place + 3 * PAGE);
    // Removed while attached: stays until the last detaches.
    SHOW(shmctl(id, IPC_RMID, NULL));
    TRY(shmget(key_base, 0, 0));
    MUST(shmctl(id, IPC_STAT, &status) == 0);
    printf("removed: mode %o attached %lu key %d\n", status.shm_perm.mode, status.shm_nattch, status.shm_perm.__key);
    SHOW(shmdt(place));
    SHOW(shmdt(place + 3 * PAGE));
    SHOW(shmctl(id, IPC_STAT, &status));
    SHOW(shmctl(-1, IPC_STAT, &status));
    SHOW(shmctl(0x7fffffff, IPC_RMID, NULL));
    id = shmget(IPC_PRIVATE, PAGE, 0600);
    SHOW(shmctl(id, 77, NULL));
    SHOW(shmctl(id, IPC_STAT, (void *)8));
    SHOW(shmctl(id, IPC_SET, (void *)8));
    SHOW(shmctl(id, SHM_LOCK, NULL));
    SHOW(shmctl(id, IPC_RMID, NULL));
    SHOW(shmdt((void *)1));
    SHOW(shmdt((void *)4096));
}

static void semaphores(void) {
    union semun arg;
    TRY(semget(key_base, 0, 0));
    TRY(semget(key_base, 0, IPC_CREAT | 0600));
    TRY(semget(key_base, 40000, IPC_CREAT | 0600));
    TRY(semget(key_base, -1, IPC_CREAT | 0600));
    int set = semget(key_base, 3, IPC_CREAT | 0600);
    MUST(set >= 0);
    TRY(semget(key_base, 4, 0));
    unsigned short values[3] = {1, 2, 3};
    arg.array = values;
    SHOW(semctl(set, 0, SETALL, arg));
    memset(values, 0, sizeof values);
    SHOW(semctl(set, 0, GETALL, arg));
    printf("%d %d %d\n", values[0], values[1], values[2]);
    arg.val = 5;
    SHOW(semctl(set, 1, SETVAL, arg));
    SHOW(semctl(set, 1, GETVAL));
    printf("pid %d\n", semctl(set, 1, GETPID) == getpid());
    SHOW(semctl(set, 3, GETVAL));
    SHOW(semctl(set, -1, GETVAL));
    arg.val = 40000;
    SHOW(semctl(set, 1, SETVAL, arg));
    arg.val = -1;
    SHOW(semctl(set, 1, SETVAL, arg));
    // All or nothing.
    struct sembuf two[] = {{1, -5, 0}, {0, -2, IPC_NOWAIT}};
    SHOW(semop(set, two, 2));
    SHOW(semctl(set, 1, GETVAL));
    SHOW(op(set, 0, 0, IPC_NOWAIT));
    SHOW(op(set, 3, 1, 0));
    SHOW(op(set, 0, 32767, 0));
    SHOW(semop(set, two, 0));
    SHOW(semop(set, two, 501));
    SHOW(semop(set, (void *)8, 1));
    SHOW(semop(-1, two, 1));
    SHOW(op(set, 0, -1, 0));
    struct timespec soon = {0, 10000000}, bad = {0, -1};
    struct sembuf one = {0, -1, 0};
    SHOW(semtimedop(set, &one, 1, &soon));
    SHOW(semtimedop(set, &one, 1, &bad));
    // A waiter elsewhere is woken by what it waits for.
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        on(cpu_count() - 1);
        SHOW(op(set, 0, -2, 0));
        SHOW(op(set, 2, 0, 0));
        fflush(stdout);
        _exit(0);
    }
    wait_value(set, 0, GETNCNT, 1);
    MUST(op(set, 0, 1, 0) == 0);
    printf("waiters %d\n", semctl(set, 0, GETNCNT));
    fflush(stdout);
    MUST(op(set, 0, 1, 0) == 0);
    wait_value(set, 2, GETZCNT, 1);
    MUST(op(set, 2, -3, 0) == 0);
    MUST(waitpid(child, NULL, 0) == child);
    // Undone at the end, before the parent hears of it.
    fflush(stdout);
    child = fork();
    if (child == 0) {
        on(cpu_count() - 1);
        MUST(op(set, 0, 3, SEM_UNDO) == 0);
        MUST(op(set, 1, -2, SEM_UNDO) == 0);
        MUST(op(set, 0, -1, SEM_UNDO) == 0);
        printf("child: %d %d\n", get(set, 0), get(set, 1));
        fflush(stdout);
        _exit(0);
    }
    MUST(waitpid(child, NULL, 0) == child);
    printf("undone: %d %d\n", get(set, 0), get(set, 1));
    // Ping-pong.
    arg.val = 0;
    semctl(set, 0, SETVAL, arg);
    semctl(set, 1, SETVAL, arg);
    child = fork();
    if (child == 0) {
        on(cpu_count() - 1);
        for (int i = 0; i < 100; i++) {
            MUST(op(set, 0, -1, 0) == 0);
            MUST(op(set, 1, 1, 0) == 0);
        }
        _exit(0);
    }
    for (int i = 0; i < 100; i++) {
        MUST(op(set, 0, 1, 0) == 0);
        MUST(op(set, 1, -1, 0) == 0);
    }
    MUST(waitpid(child, NULL, 0) == child);
    printf("ping-pong: %d %d\n", get(set, 0), get(set, 1));
    // Removed while somebody waits; interrupted.
    fflush(stdout);
    child = fork();
    if (child == 0) {
        on(cpu_count() - 1);
        SHOW(op(set, 0, -1, 0));
        fflush(stdout);
        _exit(0);
    }
    wait_value(set, 0, GETNCNT, 1);
    struct semid_ds status;
    arg.buf = &status;
    MUST(semctl(set, 0, IPC_STAT, arg) == 0);
    printf("nsems %lu mode %o operated %d\n", status.sem_nsems, status.sem_perm.mode, status.sem_otime != 0);
    fflush(stdout);
    MUST(semctl(set, 0, IPC_RMID) == 0);
    MUST(waitpid(child, NULL, 0) == child);
    SHOW(semctl(set, 0, GETVAL));
    SHOW(op(set, 0, 1, 0));
}

static void handler(int signal) { (void)signal; }

struct message {
    long type;
    char text[9000];
};

static void receive(int queue, size_t size, long type, int flags) {
    static struct message message;
    memset(&message, 0, sizeof message);
    errno = 0;
    ssize_t got = msgrcv(queue, &message, size, type, flags);
    if (got < 0)
        printf("receive %ld %o: %s\n", type, flags, error_name(errno));
    else
        printf("receive %ld %o: %zd type %ld %s\n", type, flags, got, message.type, message.text);
}

static void messages(void) {
    static struct message message;
    int queue = msgget(key_base, IPC_CREAT | IPC_EXCL | 0600);
    MUST(queue >= 0);
    TRY(msgget(key_base, IPC_CREAT | IPC_EXCL | 0600));
    TRY(msgget(key_base + 1, 0));
    const long types[] = {5, 3, 9, 3};
    for (int i = 0; i < 4; i++) {
        message.type = types[i];
        sprintf(message.text, "number %d", i);
        MUST(msgsnd(queue, &message, 16, 0) == 0);
    }
    receive(queue, 100, 2, IPC_NOWAIT | MSG_COPY);
    receive(queue, 100, 4, IPC_NOWAIT | MSG_COPY);
    receive(queue, 100, 0, MSG_COPY);
    receive(queue, 100, 4, IPC_NOWAIT);
    receive(queue, 100, -4, 0);
    receive(queue, 8, 0, 0);
    receive(queue, 8, 0, MSG_NOERROR);
    receive(queue, 100, 3, MSG_EXCEPT);
    receive(queue, 100, 0, 0);
    receive(queue, 100, 0, IPC_NOWAIT);
    message.type = 0;
    SHOW(msgsnd(queue, &message, 4, 0));
    message.type = 1;
    SHOW(msgsnd(queue, &message, 8193, 0));
    SHOW(msgsnd(queue, &message, -1, 0));
    SHOW(msgsnd(queue, (void *)8, 4, 0));
    SHOW(msgsnd(-1, &message, 4, 0));
    SHOW(msgrcv(queue, &message, -1, 0, 0));
    SHOW(msgsnd(queue, &message, 0, 0));
    SHOW(msgrcv(queue, &message, 0, 0, 0));
    // A full queue.
    memset(message.text, 'x', sizeof message.text);
    SHOW(msgsnd(queue, &message, 8192, IPC_NOWAIT));
    SHOW(msgsnd(queue, &message, 8192, IPC_NOWAIT));
    SHOW(msgsnd(queue, &message, 1, IPC_NOWAIT));
    struct msqid_ds status;
    MUST(msgctl(queue, IPC_STAT, &status) == 0);
    printf("bytes %lu messages %lu limit %lu sender %d\n", status.__msg_cbytes, status.msg_qnum, status.msg_qbytes,
           status.msg_lspid == getpid());
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        on(cpu_count() - 1);
        message.type = 4;
        message.text[0] = 'y';
        SHOW(msgsnd(queue, &message, 8000, 0));
        fflush(stdout);
        _exit(0);
    }
    MUST(msgrcv(queue, &message, 8192, 0, 0) == 8192);
    ssize_t got = msgrcv(queue, &message, 8192, 4, 0);
    printf("from the child: %zd %c%c\n", got, message.text[0], message.text[7999]);
    MUST(waitpid(child, NULL, 0) == child);
    MUST(msgrcv(queue, &message, 8192, 0, 0) == 8192);
    // Many, in order, to a receiver that waits.
    fflush(stdout);
    child = fork();
    if (child == 0) {
        on(cpu_count() - 1);
        long sum = 0;
        for (int i = 0; i < 200; i++) {
            MUST(msgrcv(queue, &message, 8192, 0, 0) == 8);
            long value;
            memcpy(&value, message.text, 8);
            MUST(value == i);
            sum += value;
        }
        printf("sum %ld\n", sum);
        fflush(stdout);
        _exit(0);
    }
    for (long i = 0; i < 200; i++) {
        message.type = 1 + i % 3;
        memcpy(message.text, &i, 8);
        MUST(msgsnd(queue, &message, 8, 0) == 0);
    }
    MUST(waitpid(child, NULL, 0) == child);
    // Interrupted, then removed.
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    int pipes[2];
    MUST(pipe(pipes) == 0);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        on(cpu_count() - 1);
        char byte = 0;
        MUST(write(pipes[1], &byte, 1) == 1);
        SHOW(msgrcv(queue, &message, 8192, 0, 0));
        signal(SIGUSR1, SIG_IGN);
        MUST(write(pipes[1], &byte, 1) == 1);
        // It may be gone before this begins to wait.
        printf("removed: %d\n", msgrcv(queue, &message, 8192, 0, 0) == -1 && (errno == EIDRM || errno == EINVAL));
        fflush(stdout);
        _exit(0);
    }
    char byte;
    MUST(read(pipes[0], &byte, 1) == 1);
    // It may not wait yet: repeated until it has been interrupted.
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    while (read(pipes[0], &byte, 1) != 1) {
        kill(child, SIGUSR1);
        usleep(1000);
    }
    fflush(stdout);
    MUST(msgctl(queue, IPC_RMID, NULL) == 0);
    MUST(waitpid(child, NULL, 0) == child);
    SHOW(msgctl(queue, IPC_STAT, &status));
}

static void permissions(void) {
    int queue = msgget(IPC_PRIVATE, 0640), set = semget(IPC_PRIVATE, 1, 0600), id = shmget(IPC_PRIVATE, PAGE, 0444);
    IN_CHILD("another user", {
        on(cpu_count() - 1);
        MUST(setgid(1000) == 0);
        MUST(setuid(1000) == 0);
        struct message message = {.type = 1};
        SHOW(msgsnd(queue, &message, 1, IPC_NOWAIT));
        SHOW(op(set, 0, 1, 0));
        SHOW(semctl(set, 0, GETVAL));
        SHOW(shmat(id, NULL, 0));
        TRY(shmat(id, NULL, SHM_RDONLY));
        SHOW(shmctl(id, IPC_RMID, NULL));
        SHOW(msgctl(queue, IPC_RMID, NULL));
        SHOW(semctl(set, 0, IPC_RMID));
    });
    SHOW(msgctl(queue, IPC_RMID, NULL));
    SHOW(semctl(set, 0, IPC_RMID));
    SHOW(shmctl(id, IPC_RMID, NULL));
}

int main(void) {
    key_base = 0x5000000 + getpid() * 8;
    on(0);
    memory();
    semaphores();
    messages();
    if (getuid() == 0)
        permissions();
    return 0;
}
