// What futex refuses, and set_robust_list, and the small print.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <linux/futex.h>
#include <limits.h>

static long futex(void *word, int operation, int value, void *timeout, void *word2, int value3) {
    return syscall(SYS_futex, word, operation, value, timeout, word2, value3);
}

int main(void) {
    int words[4] = {1, 2, 3, 4};
    struct timespec bad = {.tv_nsec = 1000000000}, negative = {.tv_sec = -1}, soon = {.tv_nsec = 1000};
    SHOW(futex(words, FUTEX_WAIT, 2, NULL, NULL, 0));
    SHOW(futex(words, FUTEX_WAIT, 1, &bad, NULL, 0));
    SHOW(futex(words, FUTEX_WAIT, 1, &negative, NULL, 0));
    SHOW(futex(words, FUTEX_WAIT, 1, &soon, NULL, 0));
    SHOW(futex(words, FUTEX_WAIT_PRIVATE, 1, &soon, NULL, 0));
    SHOW(futex((char *)words + 1, FUTEX_WAIT, 1, &soon, NULL, 0));
    SHOW(futex((char *)words + 2, FUTEX_WAKE, 1, NULL, NULL, 0));
    SHOW(futex((void *)8, FUTEX_WAIT, 1, &soon, NULL, 0));
    SHOW(futex((void *)-8L, FUTEX_WAIT_PRIVATE, 1, &soon, NULL, 0));
    SHOW(futex(words, FUTEX_WAIT, 1, (void *)8, NULL, 0));
    SHOW(futex(words, FUTEX_WAKE, INT_MAX, NULL, NULL, 0));
    SHOW(futex(words, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
    SHOW(futex(words, 99, 1, NULL, NULL, 0));
    SHOW(futex(words, FUTEX_WAIT_BITSET, 1, NULL, NULL, 0));
    SHOW(futex(words, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0));
    SHOW(futex(words, FUTEX_WAIT_BITSET, 5, NULL, NULL, 1));
    struct timespec past = {.tv_sec = 1};
    SHOW(futex(words, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 1, &past, NULL, FUTEX_BITSET_MATCH_ANY));
    SHOW(futex(words, FUTEX_WAIT_BITSET_PRIVATE, 1, &past, NULL, FUTEX_BITSET_MATCH_ANY));
    SHOW(futex(words, FUTEX_REQUEUE, 1, (void *)1L, words + 1, 0));
    SHOW(futex(words, FUTEX_CMP_REQUEUE, 1, (void *)1L, words + 1, 1));
    SHOW(futex(words, FUTEX_CMP_REQUEUE, 1, (void *)1L, words + 1, 7));
    SHOW(futex(words, FUTEX_WAKE_OP, 1, (void *)1L, words + 1, FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 2)));
    printf("%d\n", words[1]);
    char head[24] = {0};
    SHOW(syscall(SYS_set_robust_list, head, 24));
    SHOW(syscall(SYS_set_robust_list, head, 23));
    int *read_only = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SHOW(futex(read_only, FUTEX_WAIT_PRIVATE, 1, &soon, NULL, 0));
    SHOW(futex(read_only, FUTEX_WAIT_PRIVATE, 0, &soon, NULL, 0));
}
