/* A table that every rank reads: a copy in each rank, or one window per node (MPI_Win_allocate_shared).
 *
 *   mpirun -n 4 ./table 64            each rank has its own copy of 64 MiB
 *   mpirun -n 4 ./table 64 --shared   the ranks of a node share one
 *
 * Prints the memory of all ranks together (PSS) and a checksum, which is the same either way.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PSS of this process in KiB, from the kernel's sums over its mappings. */
static long long pss_kib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long long kib = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Pss: %lld kB", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib;
}

/* Stands for reading the table from a file: the same contents wherever it is called. */
static void load(double *table, size_t length)
{
    for (size_t i = 0; i < length; i++)
        table[i] = 1.0 / (double)(i + 1);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    long mib = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    int shared = argc > 2 && strcmp(argv[2], "--shared") == 0;
    if (mib < 1 || mib > 65536 || (argc > 2 && !shared)) {
        fprintf(stderr, "usage: table MiB [--shared]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size_t bytes = (size_t)mib << 20, length = bytes / sizeof(double);

    /* The ranks of this node. */
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    int on_node, rank;
    MPI_Comm_rank(node, &on_node);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);

    double *table = NULL;
    MPI_Win window = MPI_WIN_NULL;
    if (shared) {
        /* The first rank of the node allocates and fills the window. The others ask for its address. */
        MPI_Aint own = on_node == 0 ? (MPI_Aint)bytes : 0, size;
        int unit;
        MPI_Win_allocate_shared(own, sizeof(double), MPI_INFO_NULL, node, &table, &window);
        MPI_Win_shared_query(window, 0, &size, &unit, &table);
        MPI_Win_fence(0, window);
        if (on_node == 0)
            load(table, length);
        MPI_Win_fence(0, window);
    } else {
        table = malloc(bytes);
        if (!table)
            MPI_Abort(MPI_COMM_WORLD, 1);
        load(table, length);
    }

    double sum = 0.0;
    for (size_t i = 0; i < length; i++)
        sum += table[i];
    MPI_Barrier(MPI_COMM_WORLD);

    long long kib = pss_kib(), all_kib = 0;
    MPI_Reduce(&kib, &all_kib, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("{\"pss_mib\": %lld, \"checksum\": \"%.6f\"}\n", all_kib >> 10, sum);
    if (shared)
        MPI_Win_free(&window);
    else
        free(table);
    MPI_Comm_free(&node);
    MPI_Finalize();
    return 0;
}
