// Directories of the host that are shared are listed like any other while names come and go.
// cob: link=static kernels=4 options=--share,. compare=host timeout=300
#include "listing.h"

int main(void) {
    in_directory("shared", ".", 1);
    return 0;
}
