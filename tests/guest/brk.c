// brk: grows, shrinks, gives zeroed memory again, refuses politely.
// cob: link=static,dynamic compare=host
#include "test.h"

int main(void) {
    static char output[65536]; // stdio must not take memory from the break
    setvbuf(stdout, output, _IOFBF, sizeof output);
    char *start = (char *)syscall(SYS_brk, 0);
    printf("set %d\n", (char *)syscall(SYS_brk, start + 5 * PAGE) == start + 5 * PAGE);
    start[0] = start[5 * PAGE - 1] = 7;
    printf("shrunk %d\n", (char *)syscall(SYS_brk, start + PAGE) == start + PAGE);
    printf("kept %d\n", start[0]);
    IN_CHILD("beyond", {
        char *end = (char *)(((uintptr_t)start + 2 * PAGE) & ~(PAGE - 1));
        (void)*(volatile char *)(end + PAGE);
    });
    printf("grown %d\n", (char *)syscall(SYS_brk, start + 5 * PAGE) == start + 5 * PAGE);
    printf("zero %d\n", start[5 * PAGE - 1]);
    printf("refused %d\n", (char *)syscall(SYS_brk, 1) == start + 5 * PAGE);
    printf("refused %d\n", (char *)syscall(SYS_brk, -1L) == start + 5 * PAGE);
    IN_CHILD("child's own", {
        start[1] = 9;
        syscall(SYS_brk, start + 9 * PAGE);
        start[8 * PAGE] = 1;
    });
    printf("%d %d\n", start[1], (char *)syscall(SYS_brk, 0) == start + 5 * PAGE);
}
