// What mpirun starts for `cob bench npb --mpi`: `ranks is S`. The first rank prints `TIME seconds`.
#include "ranks.h"

int rank, ranks;

static const struct workload workloads[] = {{"is", run_is}, {"ft", run_ft}, {"cg", run_cg}};

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int at = 0; argc == 3 && at < 3; at++) {
        if (strcmp(workloads[at].name, argv[1]))
            continue;
        double time = workloads[at].run(argv[2][0]);
        MPI_Allreduce(MPI_IN_PLACE, &time, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (rank == 0 && time >= 0)
            printf("TIME %.6f\n", time);
    }
    MPI_Finalize();
}
