// Bad input to the calls that take paths (see errnos.h).
// cob: link=static kernels=1,4 compare=host timeout=600
#include "errnos.h"
#include <elf.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/inotify.h>

// The file system is the host's own on the one side and a union over it on the other, so what depends on the kind of file
// system (xattrs, O_DIRECT, RENAME_WHITEOUT) is left out.
static struct open_how how = {.flags = O_RDONLY}, how_mode = {.flags = O_RDONLY, .mode = 0644}, how_flag = {.flags = 1UL << 40},
                       how_resolve = {.resolve = 1UL << 40}, how_beneath = {.resolve = RESOLVE_BENEATH | RESOLVE_IN_ROOT},
                       how_in_root = {.resolve = RESOLVE_IN_ROOT}, how_path = {.flags = O_PATH | O_RDWR};
static char how_long[PAGE + 1];
static struct timespec times_bad[2] = {{0, 0}, {0, 1000000000}}, times_omit[2] = {{8, UTIME_OMIT}, {9, UTIME_OMIT}};
static struct timeval micros_bad[2] = {{0, 0}, {0, 1000000}}, micros_negative[2] = {{0, -1}, {0, 0}};
// Vectors of strings with a bad one.
static char *wild_string[2] = {(char *)8}, *kernel_string[3] = {"one", (char *)0xffff888000000000}, *border_string[2] = {(char *)BORDER + PAGE - 2},
            huge_string[200000], *huge_vector[2] = {huge_string}, *strings[2] = {"one"};
// More than there is room for, by strings that are short enough each.
static char big_string[100000], *many_vector[200];
// Below a file and above the root.
#define NOT_THERE "missing/new"

static const struct row rows[] = {
    ROW(open, S("file"), C(0), C(0)),
    ROW(open, S("new"), C(O_CREAT | O_EXCL | O_RDWR), C(0644)),
    ROW(open, S("new"), C(O_CREAT | O_DIRECTORY), C(0644)),
    ROW(open, S("file"), C(O_PATH), C(0)),
    ROW(open, S("loop"), C(O_PATH | O_NOFOLLOW), C(0)),
    ROW(open, S("file"), C(O_WRONLY | O_TRUNC), C(0)),
    ROW(open, S("file"), C(O_DIRECTORY), C(0)),
    ROW(open, S("hollow"), C(O_DIRECTORY | O_RDWR), C(0)),
    ROW(open, S("file"), C(3), C(0)),
    ROW(openat, D, S("file"), C(0), C(0)),
    ROW(openat, D, S("/"), C(0), C(0)),
    ROW(openat2, D, S("file"), AT(&how), N(24)),
    ROW(openat2, D, S("file"), C(&how_mode), C(24)),
    ROW(openat2, D, S("file"), C(&how_flag), C(24)),
    ROW(openat2, D, S("file"), C(&how_resolve), C(24)),
    ROW(openat2, D, S("file"), C(&how_beneath), C(24)),
    ROW(openat2, D, S("file"), C(&how_in_root), C(24)),
    ROW(openat2, D, S("file"), C(&how_path), C(24)),
    ROW(openat2, D, S("file"), C(how_long), C(PAGE)),
    ROW(openat2, D, S("file"), C(how_long), C(PAGE + 1)),
    ROW(openat2, D, S("file"), AT(&how), C(23)),
    ROW(creat, S("new"), C(0644)),
    ROW(stat, S("file"), W),
    ROW(lstat, S("loop"), W),
    ROW(newfstatat, D, S("file"), W, X(0)),
    ROW(newfstatat, F(FILE_FD), AT(ZERO), W, C(AT_EMPTY_PATH)),
    ROW(newfstatat, D, C(0), W, C(AT_EMPTY_PATH)),
    ROW(statx, D, S("file"), X(0), C(0x7ff), W),
    ROW(statx, D, S("file"), C(0), X(0x7ff), W),
    ROW(statx, D, S("file"), C(0x6000), C(0x7ff), W),
    ROW(statfs, S("file"), W),
    ROW(truncate, S("file"), C(100)),
    ROW(truncate, S("file"), C(-1)),
    ROW(chdir, S("hollow")),
    ROW(chroot, S("hollow")),
    ROW(rename, S("file"), S("new")),
    ROW(rename, S("hollow"), S("new")),
    ROW(rename, S("hollow"), S("directory")),
    ROW(rename, S("directory"), S("directory/inner")),
    ROW(rename, S("directory"), S("directory/below")),
    ROW(renameat, D, S("file"), D, S("new")),
    ROW(renameat2, D, S("file"), D, S("new"), C(0)),
    ROW(renameat2, D, S("file"), D, S("new"), C(RENAME_NOREPLACE)),
    ROW(renameat2, D, S("file"), D, S("hollow"), C(RENAME_EXCHANGE)),
    ROW(renameat2, D, S("file"), D, S("new"), C(RENAME_EXCHANGE)),
    ROW(renameat2, D, S("file"), D, S("new"), C(RENAME_EXCHANGE | RENAME_NOREPLACE)),
    ROW(renameat2, D, S("file"), D, S("new"), C(8)),
    ROW(mkdir, S("new"), C(0755)),
    ROW(mkdirat, D, S("new"), C(0755)),
    ROW(rmdir, S("new")),
    ROW(rmdir, C("..")),
    // The root directory, where the answer is an error.
    ROW(rmdir, C("/")),
    ROW(unlink, C("/")),
    ROW(mkdir, C("/"), C(0755)),
    ROW(rename, C("/"), S("new")),
    ROW(rename, C("file"), C("/")),
    ROW(link, C("file"), C("/")),
    ROW(symlink, C("file"), C("/")),
    ROW(truncate, C("/"), C(0)),
    ROW(link, S("file"), S("new")),
    ROW(linkat, D, S("file"), D, S("new"), X(0)),
    ROW(linkat, G(FILE_FD), AT(ZERO), D, S("new"), C(AT_EMPTY_PATH)),
    ROW(unlink, S("new")),
    ROW(unlinkat, D, S("new"), X(0)),
    ROW(unlinkat, D, S("new"), C(AT_REMOVEDIR)),
    ROW(symlink, S("target"), S("new")),
    ROW(symlinkat, S("target"), D, S("new")),
    ROW(readlink, S("loop"), W, N(100)),
    ROW(readlinkat, D, S("loop"), W, N(100)),
    ROW(chmod, S("file"), C(0600)),
    ROW(fchmodat, D, S("file"), C(0600)),
    ROW(fchmodat2, D, S("file"), C(0600), X(0)),
    ROW(chown, S("file"), C(-1), C(-1)),
    ROW(lchown, S("file"), C(-1), C(-1)),
    ROW(fchownat, D, S("file"), C(-1), C(-1), X(0)),
    ROW(fchownat, F(FILE_FD), AT(ZERO), C(-1), C(-1), C(AT_EMPTY_PATH)),
    ROW(utime, S("file"), Z),
    ROW(utimes, S("file"), Z),
    ROW(utimes, S("file"), C(micros_bad)),
    ROW(utimes, S("file"), C(micros_negative)),
    ROW(futimesat, D, S("file"), Z),
    ROW(futimesat, F(FILE_FD), C(0), C(micros_bad)),
    ROW(utimensat, D, S("file"), Z, X(0)),
    ROW(utimensat, D, S("file"), C(times_bad), C(0)),
    ROW(utimensat, D, S("file"), C(times_omit), C(0)),
    ROW(utimensat, F(FILE_FD), C(0), C(times_bad), C(0)),
    ROW(utimensat, F(FILE_FD), C(0), C(times_omit), X(0)),
    ROW(utimensat, C(AT_FDCWD), C(0), C(0), C(0)),
    ROW(mknod, S("new"), C(S_IFIFO | 0600), C(0)),
    ROW(mknod, S("new"), C(S_IFDIR | 0600), C(0)),
    ROW(mknod, S("new"), C(S_IFLNK | 0600), C(0)),
    ROW(mknod, S("new"), C(0xf000), C(0)),
    ROW(mknod, S("new"), C(0), C(0)),
    ROW(mknodat, D, S("new"), C(S_IFSOCK | 0600), C(0)),
    ROW(access, S("file"), X(0)),
    ROW(faccessat, D, S("file"), X(0)),
    ROW(faccessat2, D, S("file"), X(0), X(0)),
    ANY(getcwd, W, N(4096)),
    ANY(getcwd, C(0), C(0)),
    ROW(inotify_add_watch, C(INOTIFY), S("file"), C(IN_MODIFY)),
    // No program: what is executable is the host's.
    ROW(execve, S("file"), C(0), C(0)),
    ROW(execve, S("missing"), R, R),
    ROW(execve, S("missing"), C(8), C(0)),
    // Programs that can't be started, so that nothing but an error is the answer.
    ROW(execve, C("../programs/script"), AT(strings), AT(strings)),
    ROW(execve, C("../programs/script"), C(wild_string), C(strings)),
    ROW(execve, C("../programs/script"), C(strings), C(wild_string)),
    ROW(execve, C("../programs/script"), C(kernel_string), C(strings)),
    ROW(execve, C("../programs/script"), C(border_string), C(strings)),
    ROW(execve, C("../programs/script"), C(huge_vector), C(strings)),
    ROW(execve, C("../programs/script"), C(strings), C(huge_vector)),
    ROW(execve, C("../programs/script"), C(many_vector), C(strings)),
    ROW(execve, C("../programs/loop"), C(strings), C(strings)),
    ROW(execve, C("../programs/bare"), C(strings), C(strings)),
    ROW(execve, C("../programs/garbage"), AT(strings), AT(strings)),
    ROW(execve, C("../programs/empty"), C(strings), C(strings)),
    ROW(execve, C("../programs/magic"), C(strings), C(strings)),
    ROW(execve, C("../programs/machine"), C(strings), C(strings)),
    ROW(execve, C("../programs/headers"), C(strings), C(strings)),
    ROW(execve, C("../programs/far"), C(strings), C(strings)),
    ROW(execve, C("../programs/none"), C(strings), C(strings)),
    ROW(execve, C("../programs/interpreter"), C(strings), C(strings)),
    ROW(execve, C("../programs/secret"), C(strings), C(strings)),
    ROW(execve, C("../programs"), C(strings), C(strings)),
    ROW(execve, C("/dev/null"), C(strings), C(strings)),
    ROW(execveat, D, C("../programs/garbage"), AT(strings), AT(strings), X(0)),
    ROW(execveat, F(DIRECTORY), C(ZERO), C(strings), C(strings), C(AT_EMPTY_PATH)),
    ROW(execveat, D, S("file"), C(0), C(0), E(0)),
    ROW(execveat, D, AT(ZERO), C(0), C(0), C(0)),
    // Nothing is there to mount, or to unmount, and no path leads to anything that is.
    ROW(mount, C(0), C(NOT_THERE), C(0), C(0), C(0)),
    ROW(mount, C(0), C(NOT_THERE), C(8), C(0), C(0)),
    ROW(mount, C(8), C(NOT_THERE), C(0), C(0), C(0)),
    ROW(mount, C(0), C(8), C(0), C(0), C(0)),
    ROW(umount2, C(NOT_THERE), C(0)),
    ROW(umount2, C("file"), C(0)),
    ROW(umount2, C("file"), C(0x1000)),
    ROW(umount2, C(8), C(0)),
    ROW(umount2, C(8), C(-1)),
    // What file systems have of attributes is their own: only what comes before.
    ROW(getxattr, C("missing"), M("user.name"), W, N(4)),
    ROW(lgetxattr, C("loop/x"), M("user.name"), W, N(4)),
    ROW(setxattr, C("missing"), M("user.name"), R, N(4), X(0)),
    ROW(lsetxattr, C("file/x"), M("user.name"), R, N(4), X(0)),
    ROW(listxattr, C("missing"), W, N(4)),
    ROW(llistxattr, C(8), W, N(4)),
    ROW(removexattr, C("missing"), M("user.name")),
    ROW(lremovexattr, C(8), M("user.name")),
    ROW(sync, C(0)),
    ROW(umask, C(-1)),
};

static const struct left_out not_shown[] = {
    // Which is told first depends on the file system: that the root can't be renamed, or that no name is so long.
    {"rename", "1 long component"},
    {NULL, NULL},
};

static void make_program(const char *name, const void *bytes, size_t length, int mode) {
    int fd = openat(DIRECTORY, name, O_CREAT | O_WRONLY, mode);
    MUST(fd >= 0 && write(fd, bytes, length) == (ssize_t)length && close(fd) == 0);
}

// An executable of this machine, but for what is changed.
static void make_elf(const char *name, int machine, int entry_size, int entries, int type, long offset) {
    struct {
        Elf64_Ehdr header;
        Elf64_Phdr segment;
        char rest[100];
    } file = {{.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT}, .e_type = ET_EXEC, .e_version = EV_CURRENT,
               .e_machine = machine, .e_entry = 0x400000, .e_phoff = offset, .e_ehsize = sizeof(Elf64_Ehdr), .e_phentsize = entry_size,
               .e_phnum = entries},
              {.p_type = type, .p_flags = PF_R | PF_X, .p_offset = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr), .p_filesz = 20}, "/missing/interpreter"};
    if (type == PT_INTERP)
        file.segment.p_filesz = sizeof "/missing/interpreter";
    make_program(name, &file, sizeof file, 0755);
}

static void make_programs(void) {
    MUST(mkdir("programs", 0755) == 0);
    put(open("programs", O_RDONLY | O_DIRECTORY), DIRECTORY);
    make_program("script", "#!/missing/interpreter\n", 23, 0755);
    make_program("loop", "#!../programs/loop\n", 19, 0755);
    make_program("bare", "#!\n", 3, 0755);
    make_program("garbage", "garbage\n", 8, 0755);
    make_program("empty", "", 0, 0755);
    make_program("magic", "\177ELF", 4, 0755);
    make_program("secret", "garbage\n", 8, 0644);
    make_elf("machine", EM_AARCH64, sizeof(Elf64_Phdr), 1, PT_INTERP, sizeof(Elf64_Ehdr));
    make_elf("headers", EM_X86_64, 7, 1, PT_INTERP, sizeof(Elf64_Ehdr));
    make_elf("far", EM_X86_64, sizeof(Elf64_Phdr), 1, PT_INTERP, 1L << 40);
    make_elf("none", EM_X86_64, sizeof(Elf64_Phdr), 0, PT_INTERP, sizeof(Elf64_Ehdr));
    make_elf("interpreter", EM_X86_64, sizeof(Elf64_Phdr), 1, PT_INTERP, sizeof(Elf64_Ehdr));
    memset(huge_string, 'h', sizeof huge_string - 1);
    memset(big_string, 'b', sizeof big_string - 1);
    for (int i = 0; i < 199; i++)
        many_vector[i] = big_string;
}

int main(int argc, char **argv) {
    make_programs();
    left_out = not_shown;
    table_changes_names = 1;
    return show_table(rows, sizeof rows / sizeof rows[0], argv + 1);
}
