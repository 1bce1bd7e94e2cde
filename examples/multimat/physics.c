/* What happens in an iteration. */

#include <math.h>
#include <mpi.h>

#include "mesh.h"

/* A trace of a material below this is dropped, as codes do: else it would be everywhere after a while. */
#define TRACE 1e-6

/* Sends one plane of a store and receives one: `to` and `from` are ranks, or MPI_PROC_NULL. */
static void exchange_plane(struct mesh *mesh, struct store *store, int sent, int to, int received, int from)
{
    for (size_t cell = 0; cell < mesh->plane; cell++)
        mesh->send[cell] = get(store, (size_t)(sent + 1) * mesh->plane + cell);
    MPI_Sendrecv(mesh->send, (int)mesh->plane, MPI_DOUBLE, to, 0, mesh->receive, (int)mesh->plane, MPI_DOUBLE, from, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (from == MPI_PROC_NULL)
        return;
    for (size_t cell = 0; cell < mesh->plane; cell++) {
        size_t at = (size_t)(received + 1) * mesh->plane + cell;
        if (get(store, at) != mesh->receive[cell])
            set(store, at, mesh->receive[cell]);
    }
}

static void exchange(struct mesh *mesh)
{
    int below = mesh->rank > 0 ? mesh->rank - 1 : MPI_PROC_NULL;
    int above = mesh->rank + 1 < mesh->ranks ? mesh->rank + 1 : MPI_PROC_NULL;
    for (int material = 0; material < MATERIALS; material++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct store *store = &mesh->values[material][kind];
            exchange_plane(mesh, store, mesh->nz - 1, above, -1, below);
            exchange_plane(mesh, store, 0, below, mesh->nz, above);
        }
}

static inline double donor(double velocity, double here, double next)
{
    return velocity > 0 ? velocity * here : velocity * next;
}

/* Writes the value that stays in a cell, only if it differs: writing zeros over zeros would touch the page. */
static inline void settle(struct store *store, size_t cell, double here, double in, double out)
{
    double value = here - (out - in);
    if (value < TRACE)
        value = 0.0;
    if (value != here)
        set(store, cell, value);
}

static void sweep_x(struct mesh *mesh, struct store *store)
{
    for (int z = 0; z < mesh->nz; z++)
        for (int y = 0; y < mesh->ny; y++) {
            size_t row = place(mesh, 0, y, z);
            double velocity = mesh->along_x[y], in = 0.0, here = get(store, row);
            for (int x = 0; x < mesh->nx; x++) {
                double next = x + 1 < mesh->nx ? get(store, row + (size_t)x + 1) : 0.0;
                double out = x + 1 < mesh->nx ? donor(velocity, here, next) : 0.0;
                settle(store, row + (size_t)x, here, in, out);
                in = out;
                here = next;
            }
        }
}

static void sweep_y(struct mesh *mesh, struct store *store)
{
    for (int z = 0; z < mesh->nz; z++) {
        memset(mesh->flux, 0, (size_t)mesh->nx * sizeof(double));
        for (int y = 0; y < mesh->ny; y++) {
            size_t row = place(mesh, 0, y, z);
            for (int x = 0; x < mesh->nx; x++) {
                size_t cell = row + (size_t)x;
                double here = get(store, cell), out = 0.0;
                if (y + 1 < mesh->ny)
                    out = donor(mesh->along_y[x], here, get(store, cell + (size_t)mesh->nx));
                settle(store, cell, here, mesh->flux[x], out);
                mesh->flux[x] = out;
            }
        }
    }
}

static void sweep_z(struct mesh *mesh, struct store *store)
{
    int has_below = mesh->rank > 0, has_above = mesh->rank + 1 < mesh->ranks;
    for (size_t cell = 0; cell < mesh->plane; cell++)
        mesh->flux[cell] =
            has_below ? donor(mesh->along_z[cell], get(store, cell), get(store, mesh->plane + cell)) : 0.0;
    for (int z = 0; z < mesh->nz; z++) {
        int is_open = z + 1 < mesh->nz || has_above;
        size_t base = place(mesh, 0, 0, z);
        for (size_t cell = 0; cell < mesh->plane; cell++) {
            double here = get(store, base + cell), out = 0.0;
            if (is_open)
                out = donor(mesh->along_z[cell], here, get(store, base + mesh->plane + cell));
            settle(store, base + cell, here, mesh->flux[cell], out);
            mesh->flux[cell] = out;
        }
    }
}

void advect(struct mesh *mesh)
{
    exchange(mesh);
    for (int material = 0; material < MATERIALS; material++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct store *store = &mesh->values[material][kind];
            sweep_z(mesh, store);
            sweep_x(mesh, store);
            sweep_y(mesh, store);
            store_tidy(store);
        }
}

/* The mixture's fields, of all materials in a cell: pressure and the like. They change everywhere, always. */
void mixture(struct mesh *mesh, const struct options *options, int iteration)
{
    size_t first = mesh->plane, last = mesh->cells - mesh->plane;
    for (size_t cell = first; cell < last; cell++) {
        double mass = 1e-12, energy = 0.0, stiff = 0.0;
        for (int material = 0; material < MATERIALS; material++) {
            double of = get(&mesh->values[material][0], cell);
            mass += of;
            energy += get(&mesh->values[material][1], cell);
            stiff += of * (1.4 + 0.3 * material);
        }
        double pressure = (stiff / mass - 1.0) * energy;
        double sound = sqrt(stiff / mass * fabs(pressure) / mass);
        for (int field = 0; field < options->fields; field++) {
            double *value = &mesh->fields[field][cell];
            *value = 0.9 * *value + 0.1 * (pressure + (field + 1) * sound) + 1e-9 * iteration;
        }
    }
}
