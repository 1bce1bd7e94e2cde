/* multimat: a small multi-material simulation on MPI, made after what S. Valat told of HERA ("An evaluation of Linux
 * Kernel Samepage Merging on simulations", CEA): every cell of a 3D mesh has a value for each material, and as most
 * cells hold a single material, most of these values are zero.
 *
 * Each iteration moves the materials (donor-cell advection, one direction after the other), exchanges the ranks'
 * outermost planes, and computes the mixture's fields anew. So zeros become values and values zeros at the materials'
 * borders, and the fields change everywhere.
 *
 * The mesh is cut along z, a slice for each rank. All ranks together print one JSON object. The checksum depends on the
 * parameters and the number of ranks only: neither on the storage (see store.h) nor on what KSM does. */

#include <dlfcn.h>
#include <getopt.h>
#include <mpi.h>

#include "mesh.h"

static uint64_t summed(uint64_t value)
{
    uint64_t sum = 0;
    MPI_Reduce(&value, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    return sum;
}

static int later(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static const char usage[] =
    "multimat: a small multi-material simulation; start it with mpirun\n"
    "  --cells N         cells in each direction of the whole mesh (96)\n"
    "  --iterations N    (50)\n"
    "  --fields N        fields of the mixture, up to 32 (24)\n"
    "  --tables MIB      tables that are the same on every rank (0)\n"
    "  --seed N          of the noise in the materials (1)\n"
    "  --scan-every N    asks ksmith for a pass after initialisation and every N iterations, through libksmith.so (never)\n";

static int parse(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {
        {"cells", 1, 0, 'c'},  {"iterations", 1, 0, 'i'}, {"fields", 1, 0, 'f'},     {"tables", 1, 0, 't'},
        {"seed", 1, 0, 's'},   {"scan-every", 1, 0, 'e'}, {"help", 0, 0, 'h'},       {0, 0, 0, 0},
    };
    int name;
    while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        long value = optarg != NULL ? strtol(optarg, NULL, 10) : 0;
        switch (name) {
        case 'c': options->cells = (int)value; break;
        case 'i': options->iterations = (int)value; break;
        case 'f': options->fields = (int)value; break;
        case 't': options->tables = (int)value; break;
        case 's': options->seed = (uint64_t)value; break;
        case 'e': options->scan_every = (int)value; break;
        default: return 0;
        }
    }
    return options->cells > 0 && options->cells <= 1024 && options->iterations > 0 && options->fields >= 0 &&
           options->fields <= 32 && options->tables >= 0;
}

/* ksmith_scan of ksmith.h, if libksmith.so was loaded or can be. */
static int (*scan)(unsigned passes, int milliseconds) = NULL;

static void find_ksmith(void)
{
    void *library = dlopen("libksmith.so", RTLD_NOW | RTLD_GLOBAL);
    void *symbol = dlsym(library != NULL ? library : RTLD_DEFAULT, "ksmith_scan");
    memcpy(&scan, &symbol, sizeof(symbol));
}

int main(int argc, char **argv)
{
    struct options options = {96, 50, 24, 0, 0, 1};
    struct mesh mesh;
    memset(&mesh, 0, sizeof(mesh));
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &mesh.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mesh.ranks);
    if (!parse(argc, argv, &options) || options.cells < mesh.ranks) {
        if (mesh.rank == 0)
            fputs(usage, stderr);
        MPI_Finalize();
        return 2;
    }
    if (options.scan_every > 0)
        find_ksmith();

    double started = MPI_Wtime();
    mesh_init(&mesh, &options);
    MPI_Barrier(MPI_COMM_WORLD);
    double initialised = MPI_Wtime();
    double *times = allocated(calloc((size_t)options.iterations, sizeof(double)));
    for (int iteration = 0; iteration < options.iterations; iteration++) {
        /* One rank asks for all, as there is one ksmd on a node, and does not wait: the passes take place all the same. */
        if (scan != NULL && mesh.rank == 0 && iteration % options.scan_every == 0)
            scan(2, 0);
        double before = MPI_Wtime();
        advect(&mesh);
        mixture(&mesh, &options, iteration);
        MPI_Barrier(MPI_COMM_WORLD);
        times[iteration] = MPI_Wtime() - before;
    }
    double ended = MPI_Wtime();

    uint64_t zeros[4];
    count_zeros(&mesh, zeros);
    for (int count = 0; count < 4; count++)
        zeros[count] = summed(zeros[count]);
    uint64_t sum = summed(checksum(&mesh, &options));
    uint64_t rss = summed(own_memory("Rss")), pss = summed(own_memory("Pss"));
    if (mesh.rank == 0) {
        qsort(times, (size_t)options.iterations, sizeof(double), later);
        printf("{\"storage\": \"%s\", \"ranks\": %d, \"init_seconds\": %.3f, \"compute_seconds\": %.3f, "
               "\"median_iteration_seconds\": %.4f, \"checksum\": \"%016llx\", \"rss_bytes\": %llu, \"pss_bytes\": %llu, "
               "\"zero_values\": %.3f, \"zero_pages\": %.3f, \"asked_ksmith\": %s}\n",
               STORAGE, mesh.ranks, initialised - started, ended - initialised, times[options.iterations / 2],
               (unsigned long long)sum, (unsigned long long)rss, (unsigned long long)pss,
               (double)zeros[0] / (double)zeros[1], (double)zeros[2] / (double)zeros[3],
               scan != NULL ? "true" : "false");
    }
    MPI_Finalize();
    return 0;
}
