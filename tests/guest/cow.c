// fork and memory: private is copied, shared is shared, many generations, vfork, stacks and big areas.
// cob: link=static,dynamic compare=host
#include "test.h"

static int initialized = 5, zero;

static int generations(int left, char *memory) {
    memory[left] += left;
    if (left == 0) {
        int sum = 0;
        for (int i = 0; i < 64; i++)
            sum += memory[i];
        return sum;
    }
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0)
        _exit(generations(left - 1, memory));
    int status;
    MUST(waitpid(child, &status, 0) == child);
    int sum = 0;
    for (int i = 0; i < left; i++)
        sum += memory[i];
    MUST(sum == 0); // what the children wrote is not here
    return WEXITSTATUS(status);
}

int main(void) {
    int on_stack = 1;
    char *private = mmap(NULL, 256 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *shared = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 256; i++)
        private[i * PAGE] = i;
    IN_CHILD("writer", {
        initialized = 6, zero = 7, on_stack = 8;
        for (int i = 0; i < 256; i++) {
            MUST(private[i * PAGE] == (char)i);
            private[i * PAGE] = 99;
        }
        for (int i = 0; i < 16; i++)
            shared[i * PAGE] = 'a' + i;
    });
    printf("%d %d %d\n", initialized, zero, on_stack);
    int wrong = 0;
    for (int i = 0; i < 256; i++)
        wrong += private[i * PAGE] != (char)i;
    printf("wrong %d shared %c%c\n", wrong, shared[0], shared[15 * PAGE]);
    char *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("generations %d\n", generations(12, memory));
    // Many children at once that all write the same pages.
    fflush(stdout);
    for (int i = 0; i < 10; i++)
        if (fork() == 0) {
            for (int page = 0; page < 256; page++)
                private[page * PAGE] += i;
            int ok = 1;
            for (int page = 0; page < 256; page++)
                ok &= private[page * PAGE] == (char)(page + i);
            _exit(ok ? 0 : 1);
        }
    int failed = 0, status;
    while (wait(&status) > 0)
        failed += status != 0;
    printf("failed %d\n", failed);
    // A read-only page stays so in the child, and the child can open it up for itself.
    MUST(mprotect(private, PAGE, PROT_READ) == 0);
    IN_CHILD("read only", private[0] = 1);
    IN_CHILD("opened", MUST(mprotect(private, PAGE, PROT_READ | PROT_WRITE) == 0); private[0] = 1);
    printf("%d\n", private[0]);
    // Unmapping and dropping in the child leave the parent alone.
    IN_CHILD("unmapper", munmap(private, 256 * PAGE); madvise(shared, PAGE, MADV_DONTNEED));
    printf("%d %c\n", private[5 * PAGE], shared[0]);
    volatile int changed = 0;
    pid_t child = vfork();
    if (child == 0) {
        changed = 1;
        _exit(3);
    }
    waitpid(child, &status, 0);
    printf("vfork %d status %d\n", changed, WEXITSTATUS(status));
}
