// sendfile, copy_file_range, splice, tee between files and pipes; readahead and fadvise.
// cob: link=dynamic compare=host
#include "test.h"
#include <sys/sendfile.h>

int main(void) {
    char buffer[100] = {0};
    int in = open("in", O_CREAT | O_RDWR, 0600), out = open("out", O_CREAT | O_RDWR, 0600), ends[2];
    MUST(write(in, "0123456789abcdef", 16) == 16 && pipe(ends) == 0);
    off_t offset = 4;
    SHOW(sendfile(out, in, &offset, 6));
    printf("offset %ld\n", (long)offset);
    SHOW(lseek(in, 0, SEEK_SET));
    SHOW(sendfile(ends[1], in, NULL, 100));
    SHOW(read(ends[0], buffer, 100));
    printf("%s\n", buffer);
    SHOW(sendfile(out, ends[0], NULL, 1));
    SHOW(sendfile(99, in, NULL, 1));
    SHOW(lseek(in, 0, SEEK_SET));
    SHOW(copy_file_range(in, NULL, out, NULL, 8, 0));
    SHOW(copy_file_range(in, NULL, out, NULL, 8, 1));
    SHOW(copy_file_range(in, NULL, ends[1], NULL, 8, 0));
    memset(buffer, 0, sizeof buffer);
    SHOW(pread(out, buffer, 100, 0));
    printf("%s\n", buffer);
    SHOW(posix_fadvise(in, 0, 0, POSIX_FADV_SEQUENTIAL));
    SHOW(posix_fadvise(ends[0], 0, 0, POSIX_FADV_SEQUENTIAL));
    SHOW(posix_fadvise(in, 0, 0, 77));
}
