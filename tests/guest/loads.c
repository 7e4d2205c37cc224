// Load averages: sysinfo and /proc/loadavg say the same, and a thread that runs makes them grow.
// cob: link=static compare=host timeout=120
#include "test.h"
#include <sys/sysinfo.h>

// In hundredths, as /proc/loadavg rounds them.
static void averages(long *text, long *call) {
    struct sysinfo info;
    double three[3];
    FILE *file = fopen("/proc/loadavg", "r");
    MUST(file && fscanf(file, "%lf %lf %lf", &three[0], &three[1], &three[2]) == 3);
    fclose(file);
    MUST(sysinfo(&info) == 0);
    for (int i = 0; i < 3; i++) {
        text[i] = (long)(three[i] * 100 + 0.5);
        call[i] = (long)((double)info.loads[i] / 65536 * 100 + 0.5);
    }
}

int main(void) {
    pid_t spinner = fork();
    if (spinner == 0)
        for (;;)
            ;
    long text[3], call[3];
    do
        averages(text, call);
    while (text[0] == 0 || text[1] == 0 || text[2] == 0);
    printf("a running thread is load\n");
    // Two looks may lie on both sides of a sample.
    int same;
    do {
        averages(text, call);
        same = 1;
        for (int i = 0; i < 3; i++)
            same &= labs(text[i] - call[i]) <= 1;
    } while (!same);
    printf("both say the same\n");
    kill(spinner, SIGKILL);
    MUST(waitpid(spinner, NULL, 0) == spinner);
    return 0;
}
