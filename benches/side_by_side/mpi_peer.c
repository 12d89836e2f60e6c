/* The same messages over MPI: `mpirun -n 2 mpi_peer`. Rank 0 is the client, rank 1 the server; a message is received into
 * the same memory each time. */
#define _GNU_SOURCE
#include <mpi.h>
#include "schedule.h"

static int peer;

/* In words of 8 bytes, which every workload consists of: a count is an int, and bytes would overflow it at 2 GiB. */
static void send_message(const void *bytes, size_t size) {
    MPI_Send(bytes, (int)(size / 8), MPI_UINT64_T, peer, 0, MPI_COMM_WORLD);
}

static void recv_message(void *bytes, size_t size) {
    MPI_Recv(bytes, (int)(size / 8), MPI_UINT64_T, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) die("usage: mpirun -n 2 mpi_peer");
    peer = 1 - rank;
    run_schedule(rank == 1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
