// What the workloads with MPI share. Each is the workload of the same name in the folder above, with the same generator and the same
// published values, for ranks that share nothing.
#pragma once
#include "../papers.h"
#include <mpi.h>

extern int rank, ranks;

// As with threads: the seconds of the part that the specification times on the slowest rank, or a negative number. All ranks give the same.
double run_is(char size), run_ft(char size), run_cg(char size);

// Whether all ranks say so.
static inline bool all_agree(bool right) {
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
    return right;
}

// When all ranks are here.
static inline double common_start(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    return seconds();
}
