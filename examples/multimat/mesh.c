/* The mesh as it is at first: bodies of several materials in a gas. */

#include <math.h>

#include "mesh.h"

#ifdef INDIRECT
const double no_values[BLOCK];
#endif

static double noise(uint64_t seed, uint64_t place)
{
    return (double)(mix(seed ^ mix(place)) >> 11) / 9007199254740992.0;
}

/* Which material is at a place, in shares of the whole mesh: bodies in a gas. */
static int material_at(double x, double y, double z)
{
    double dx = x - 0.5, dy = y - 0.5;
    if (y < 0.15)
        return 1; /* the ground */
    if (y > 0.9)
        return 2; /* a plate */
    if (dx * dx + dy * dy < 0.04 && z > 0.1 && z < 0.5)
        return 3; /* a cylinder */
    if (dx * dx + dy * dy + (z - 0.75) * (z - 0.75) < 0.03)
        return 4; /* a ball */
    if (fabs(z - 0.05) < 0.03 && y < 0.6)
        return 5; /* a wall */
    return 0;     /* the gas */
}

size_t place(const struct mesh *mesh, int x, int y, int z)
{
    return (size_t)(z + 1) * mesh->plane + (size_t)y * (size_t)mesh->nx + (size_t)x;
}

void mesh_init(struct mesh *mesh, const struct options *options)
{
    int each = options->cells / mesh->ranks, more = options->cells % mesh->ranks;
    mesh->nx = mesh->ny = mesh->global_nz = options->cells;
    mesh->nz = each + (mesh->rank < more);
    mesh->first_z = mesh->rank * each + (mesh->rank < more ? mesh->rank : more);
    mesh->plane = (size_t)mesh->nx * (size_t)mesh->ny;
    mesh->cells = mesh->plane * (size_t)(mesh->nz + 2);
    for (int material = 0; material < MATERIALS; material++)
        for (int kind = 0; kind < KINDS; kind++)
            store_init(&mesh->values[material][kind], mesh->cells);
    mesh->fields = allocated(calloc((size_t)options->fields + 1, sizeof(double *)));
    for (int field = 0; field < options->fields; field++)
        mesh->fields[field] = zeroed(mesh->cells);
    mesh->flux = allocated(malloc(mesh->plane * sizeof(double)));
    mesh->send = allocated(malloc(mesh->plane * sizeof(double)));
    mesh->receive = allocated(malloc(mesh->plane * sizeof(double)));

    /* A slow turn about the axis and a swirl along it: free of divergence, so that what is even stays even. */
    double n = options->cells;
    mesh->along_x = allocated(malloc((size_t)mesh->ny * sizeof(double)));
    mesh->along_y = allocated(malloc((size_t)mesh->nx * sizeof(double)));
    mesh->along_z = allocated(malloc(mesh->plane * sizeof(double)));
    for (int y = 0; y < mesh->ny; y++)
        mesh->along_x[y] = -COURANT * (2.0 * (y + 0.5) / n - 1.0);
    for (int x = 0; x < mesh->nx; x++)
        mesh->along_y[x] = COURANT * (2.0 * (x + 0.5) / n - 1.0);
    for (int y = 0; y < mesh->ny; y++)
        for (int x = 0; x < mesh->nx; x++)
            mesh->along_z[(size_t)y * (size_t)mesh->nx + (size_t)x] =
                COURANT * sin(2 * M_PI * x / n) * sin(2 * M_PI * y / n);

    for (int z = 0; z < mesh->nz; z++)
        for (int y = 0; y < mesh->ny; y++)
            for (int x = 0; x < mesh->nx; x++) {
                int material = material_at((x + 0.5) / n, (y + 0.5) / n, (mesh->first_z + z + 0.5) / n);
                uint64_t global = (uint64_t)(mesh->first_z + z) * mesh->plane + (uint64_t)y * (uint64_t)mesh->nx + (uint64_t)x;
                double mass = (1.0 + material) * (1.0 + 0.01 * noise(options->seed, global));
                set(&mesh->values[material][0], place(mesh, x, y, z), mass);
                set(&mesh->values[material][1], place(mesh, x, y, z), 2.5 * mass);
            }

    /* Tables of material properties, as many codes read them on every rank: the same on all. */
    size_t size = (size_t)options->tables << 20;
    mesh->tables = size > 0 ? allocated(malloc(size)) : NULL;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t entry = mix(options->seed + at);
        memcpy(mesh->tables + at, &entry, 8);
    }
}
