// execve: arguments, environment, scripts, what survives and what does not, and every refusal.
// cob: link=static,dynamic,static-pie compare=host
#include "test.h"
#include <sys/auxv.h>

extern char **environ;

static void make(const char *path, const char *text, mode_t mode) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0700);
    MUST(write(fd, text, strlen(text)) == (long)strlen(text));
    fchmod(fd, mode);
    close(fd);
}

static int second_life(int argc, char **argv) {
    printf("argc %d:", argc);
    for (int i = 0; i < argc; i++)
        printf(" [%s]", argv[i]);
    printf("\nenvironment:");
    for (char **variable = environ; *variable; variable++)
        printf(" [%s]", *variable);
    struct sigaction usr1, usr2;
    sigaction(SIGUSR1, NULL, &usr1);
    sigaction(SIGUSR2, NULL, &usr2);
    sigset_t mask;
    sigprocmask(0, NULL, &mask);
    printf("\nhandler reset %d, ignored kept %d, mask kept %d\n", usr1.sa_handler == SIG_DFL,
           usr2.sa_handler == SIG_IGN, sigismember(&mask, SIGALRM));
    SHOW(fcntl(20, F_GETFD));
    SHOW(fcntl(21, F_GETFD));
    printf("umask %o, random %d, page size %ld, execfn %d, secure %ld\n", umask(0), getauxval(AT_RANDOM) != 0,
           getauxval(AT_PAGESZ), getauxval(AT_EXECFN) != 0, getauxval(AT_SECURE));
    printf("stack aligned %d\n", ((uintptr_t)argv & 7) == 0);
    char byte = 0;
    printf("stack works %d\n", byte);
    char *huge = __builtin_alloca(4 << 20);
    memset(huge, 1, 4 << 20);
    printf("grown %d\n", huge[100]);
    return 17;
}

static void try(const char *path, char **argv, char **envp) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execve(path, argv, envp);
        printf("execve %s: %s\n", path ? path : "(null)", error_name(errno));
        fflush(stdout);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    show_status("result", status);
}

static void handler(int number) { (void)number; }

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "again") == 0)
        return second_life(argc, argv);
    char self[4096] = {0};
    MUST(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    printf("same %d\n", strstr(self, strrchr(argv[0], '/')) != NULL);
    signal(SIGUSR1, handler);
    signal(SIGUSR2, SIG_IGN);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGALRM);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    umask(031);
    fcntl(1, F_DUPFD, 20);
    fcntl(1, F_DUPFD_CLOEXEC, 21);
    char *arguments[] = {"name", "again", "", "with space", NULL}, *variables[] = {"A=1", "B", "C=", NULL};
    char *nothing[] = {NULL};
    try(self, arguments, variables);
    try(self, arguments, nothing);
    try("missing", arguments, variables);
    try("", arguments, variables);
    try(".", arguments, variables);
    try(NULL, arguments, variables);
    make("text", "just text\n", 0700);
    try("text", arguments, variables);
    make("plain", "#!/bin/sh\necho no\n", 0600);
    try("plain", arguments, variables);
    make("script", "#!/bin/sh -e\necho script: $0 $1 \"$2\" $# $A\nexit 3\n", 0755);
    try("./script", arguments, variables);
    make("nested", "#!./script with args\n", 0755);
    try("./nested", arguments, variables);
    make("lost", "#!/no/such/interpreter\n", 0755);
    try("./lost", arguments, variables);
    make("empty", "", 0755);
    try("./empty", arguments, variables);
    make("bang", "#!\n", 0755);
    try("./bang", arguments, variables);
    make("loop", "#!./loop\n", 0755);
    try("./loop", arguments, variables);
    make("elf", "\177ELF\2\1\1", 0755);
    try("./elf", arguments, variables);
    try("text/inside", arguments, variables);
    try(self, (char **)8, variables);
    char *wild[] = {"x", (char *)8, NULL};
    try(self, wild, variables);
    char *long_one = malloc(200000);
    memset(long_one, 'x', 199999);
    long_one[199999] = 0;
    char *too_long[] = {"x", long_one, NULL};
    try(self, too_long, variables);
    long_one[100000] = 0;
    char *fits[] = {"/bin/true", long_one, NULL};
    try("/bin/true", fits, variables);
    int fd = open(self, O_RDONLY | O_CLOEXEC);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fexecve(fd, arguments, variables);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    show_status("fexecve", status);
}
