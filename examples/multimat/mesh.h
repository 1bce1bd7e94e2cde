/* The mesh of one rank, and what is done with it. */

#ifndef MESH_H
#define MESH_H

#include "store.h"

#define MATERIALS 6
/* Mass and energy: what each cell has for each material. */
#define KINDS 2
/* The longest way of a material in one iteration, in cells. */
#define COURANT 0.4

struct options {
    int cells, iterations, fields, tables, scan_every;
    uint64_t seed;
};

struct mesh {
    int nx, ny, nz;         /* of this rank, without the two planes of its neighbours */
    int first_z, global_nz; /* where its slice lies */
    int rank, ranks;
    size_t plane, cells;    /* cells of a plane, and of all planes with the neighbours' two */
    struct store values[MATERIALS][KINDS];
    double **fields;
    double *along_x, *along_y, *along_z; /* velocities: each is the same along its own direction */
    double *flux, *send, *receive;
    unsigned char *tables;
};

/* A good mix of 64 bits (splitmix64): for noise that repeats with the seed, and for the checksum. */
static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* mesh.c */
void mesh_init(struct mesh *mesh, const struct options *options);
size_t place(const struct mesh *mesh, int x, int y, int z);

/* physics.c */
void advect(struct mesh *mesh);
void mixture(struct mesh *mesh, const struct options *options, int iteration);

/* measure.c */
uint64_t checksum(const struct mesh *mesh, const struct options *options);
void count_zeros(const struct mesh *mesh, uint64_t counts[4]);
uint64_t own_memory(const char *key);

#endif
