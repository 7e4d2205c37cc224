// Pseudo terminals: modes, echo, line editing, window size, signals from control characters, hang-up.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <termios.h>

static void shown(const char *what, int fd) {
    char buffer[256];
    struct timespec little = {.tv_nsec = 20000000};
    nanosleep(&little, NULL);
    long length = read(fd, buffer, sizeof buffer);
    printf("%s:", what);
    if (length < 0)
        printf(" %s", error_name(errno));
    for (long i = 0; i < length; i++)
        printf(buffer[i] < 32 || buffer[i] == 127 ? " \\%o" : " %c", buffer[i]);
    printf("\n");
}

static volatile int interrupts;
static void handler(int number) { interrupts = number; }

int main(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    SHOW(master >= 0);
    SHOW(grantpt(master));
    SHOW(unlockpt(master));
    char *name = ptsname(master);
    printf("%d\n", strncmp(name, "/dev/pts/", 9) == 0);
    int slave = open(name, O_RDWR | O_NOCTTY);
    SHOW(slave >= 0);
    SHOW(isatty(slave));
    struct winsize size = {24, 80, 0, 0};
    SHOW(ioctl(master, TIOCSWINSZ, &size));
    size.ws_row = 0;
    SHOW(ioctl(slave, TIOCGWINSZ, &size));
    printf("%d x %d\n", size.ws_row, size.ws_col);
    struct termios modes;
    SHOW(tcgetattr(slave, &modes));
    printf("modes %x %x %x %x\n", modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag);
    fcntl(slave, F_SETFL, O_NONBLOCK), fcntl(master, F_SETFL, O_NONBLOCK);
    write(master, "hel", 3);
    shown("line not finished", slave);
    write(master, "pp\177lo\n", 6);
    shown("line", slave);
    shown("echo", master);
    write(master, "word word2\027x\ngone\025kept\n", 24);
    shown("word erase", slave);
    shown("line kill", slave);
    shown("echo", master);
    write(master, "\004", 1);
    shown("end of file", slave);
    write(slave, "out\n", 4);
    shown("output", master);
    write(master, "a\rb\n", 4);
    shown("return", slave);
    shown("newline", slave);
    shown("echo", master);
    modes.c_lflag &= ~(ICANON | ECHO);
    modes.c_oflag &= ~OPOST;
    modes.c_cc[VMIN] = 1, modes.c_cc[VTIME] = 0;
    SHOW(tcsetattr(slave, TCSANOW, &modes));
    write(master, "raw\177\004", 5);
    shown("raw", slave);
    shown("no echo", master);
    write(slave, "out\n", 4);
    shown("raw output", master);
    int available;
    write(master, "12345", 5);
    usleep(20000);
    SHOW(ioctl(slave, FIONREAD, &available));
    printf("available %d\n", available);
    SHOW(tcflush(slave, TCIFLUSH));
    shown("flushed", slave);
    fcntl(slave, F_SETFL, 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setsid();
        SHOW(ioctl(slave, TIOCSCTTY, 0));
        SHOW(tcgetpgrp(slave) == getpid());
        SHOW(tcsetpgrp(slave, 1 << 29));
        signal(SIGINT, handler), signal(SIGQUIT, handler), signal(SIGTSTP, handler), signal(SIGWINCH, handler);
        signal(SIGHUP, handler);
        int terminal = open("/dev/tty", O_RDWR);
        SHOW(terminal >= 0);
        const char *characters = "\003\034\032";
        for (int i = 0; i < 3; i++) {
            interrupts = 0;
            write(master, characters + i, 1);
            while (!interrupts)
                sched_yield();
            printf("signal %s\n", sigabbrev_np(interrupts));
        }
        interrupts = 0;
        size.ws_row = 50;
        ioctl(master, TIOCSWINSZ, &size);
        while (!interrupts)
            sched_yield();
        printf("signal %s\n", sigabbrev_np(interrupts));
        interrupts = 0;
        fflush(stdout);
        close(master);
        kill(getppid(), SIGUSR1);
        while (!interrupts)
            sched_yield();
        printf("signal %s\n", sigabbrev_np(interrupts));
        char byte;
        SHOW(read(terminal, &byte, 1));
        SHOW(write(terminal, "x", 1));
        fflush(stdout);
        _exit(0);
    }
    sigset_t set;
    int number, status;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    // The child's ring: close the last master.
    signal(SIGUSR1, handler);
    while (interrupts != SIGUSR1)
        usleep(1000);
    (void)number;
    close(slave);
    close(master);
    waitpid(child, &status, 0);
    show_status("child", status);
    // Minors do not end at 255.
    enum { MANY = 260 };
    int masters[MANY];
    for (int i = 0; i < MANY; i++)
        MUST((masters[i] = open("/dev/ptmx", O_RDWR | O_NOCTTY)) >= 0 && unlockpt(masters[i]) == 0);
    struct stat about;
    slave = open(ptsname(masters[MANY - 1]), O_RDWR | O_NOCTTY);
    MUST(slave >= 0 && fstat(slave, &about) == 0);
    printf("major %d, minor is the number: %d\n", major(about.st_rdev),
           (int)minor(about.st_rdev) == atoi(ptsname(masters[MANY - 1]) + strlen("/dev/pts/")));
}
