// /proc/PID/clear_refs, 5: the peak of the resident size (VmHWM) is what is resident, on whatever kernels that lies.
// cob: link=static,dynamic flags=-pthread compare=host
#include "hands.h"

enum { MIB = 1 << 20, MUCH = 24 * MIB, SOME = 8 * MIB };

static void clear(const char *how) {
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    MUST(fd >= 0);
    MUST(write(fd, how, 1) == 1);
    close(fd);
}

static void touch_and_unmap(long bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    for (long i = 0; i < bytes; i += PAGE)
        at[i] = 1;
    MUST(munmap(at, bytes) == 0);
}

// What may differ by a little: pages of the program itself, and batches that Linux counts in.
static void show(const char *what, long above) {
    long more = (status_field("VmHWM:") - status_field("VmRSS:")) * 1024;
    printf("%s: as expected %d\n", what, more > above - 2 * MIB && more < above + 2 * MIB);
}

int main(void) {
    start_hands();
    ON(0, touch_and_unmap(MUCH));
    show("much, on the first CPU", MUCH);
    clear("1");
    show("marks cleared", MUCH);
    clear("5");
    show("peak cleared", 0);
    ON(2, touch_and_unmap(SOME));
    show("some, on the last CPU", SOME);
    ON(2, clear("5"));
    show("peak cleared there", 0);
    ON(1, touch_and_unmap(SOME));
    show("some, on another one", SOME);
    long most = status_field("VmPeak:");
    clear("5");
    printf("the peak of the mapped size stays: %d\n", status_field("VmPeak:") == most);
    return 0;
}
