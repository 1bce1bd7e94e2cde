/* One number per cell of which most are zero, stored in one of two ways.
 *
 * Plain: an array; a zero takes as much memory as a value.
 * With -DINDIRECT: blocks of cells behind a table; a block that is all zero has no memory. This is the hand-written
 * layer that codes use to save the zeros' memory, and its price is a look-up for every access. */

#ifndef STORE_H
#define STORE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void *allocated(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "multimat: out of memory: ask for fewer cells\n");
        exit(1);
    }
    return memory;
}

/* As a C++ vector does it, or a code that sets its fields first: all is written to, so that a zero costs memory. The
 * compiler must not see a calloc in it: memory of calloc costs nothing until it is written to. */
static inline double *zeroed(size_t count)
{
    double *values = allocated(malloc(count * sizeof(double)));
    __asm__ volatile("" : "+r"(values)::"memory");
    memset(values, 0, count * sizeof(double));
    return values;
}

#ifndef INDIRECT

#define STORAGE "plain"

struct store {
    double *values;
};

static inline void store_init(struct store *store, size_t cells)
{
    store->values = zeroed(cells);
}

static inline double get(const struct store *store, size_t cell)
{
    return store->values[cell];
}

static inline void set(struct store *store, size_t cell, double value)
{
    store->values[cell] = value;
}

static inline void store_tidy(struct store *store)
{
    (void)store;
}

#else

#define STORAGE "indirect"
#define BLOCK_BITS 6
#define BLOCK (1u << BLOCK_BITS)
/* Blocks are allocated so many at a time. */
#define SLAB 256u

/* Every block without a value is this one. Never written. */
extern const double no_values[BLOCK];

struct store {
    double **table;
    size_t blocks;
    /* Blocks for use, linked by their first bytes. */
    double *unused;
};

static inline void store_init(struct store *store, size_t cells)
{
    store->blocks = (cells + BLOCK - 1) >> BLOCK_BITS;
    store->table = allocated(malloc(store->blocks * sizeof(double *)));
    store->unused = NULL;
    for (size_t block = 0; block < store->blocks; block++)
        store->table[block] = (double *)no_values;
}

static inline double get(const struct store *store, size_t cell)
{
    return store->table[cell >> BLOCK_BITS][cell & (BLOCK - 1)];
}

static inline void store_release(struct store *store, double *block)
{
    memcpy(block, &store->unused, sizeof(store->unused));
    store->unused = block;
}

static inline double *store_block(struct store *store)
{
    if (store->unused == NULL) {
        double *slab = allocated(malloc(SLAB * BLOCK * sizeof(double)));
        for (unsigned block = 0; block < SLAB; block++)
            store_release(store, slab + block * BLOCK);
    }
    double *block = store->unused;
    memcpy(&store->unused, block, sizeof(store->unused));
    memset(block, 0, BLOCK * sizeof(double));
    return block;
}

static inline void set(struct store *store, size_t cell, double value)
{
    double **block = &store->table[cell >> BLOCK_BITS];
    if (*block == no_values) {
        if (value == 0.0)
            return;
        *block = store_block(store);
    }
    (*block)[cell & (BLOCK - 1)] = value;
}

/* Gives back the blocks that have become all zero. */
static inline void store_tidy(struct store *store)
{
    for (size_t place = 0; place < store->blocks; place++) {
        double *block = store->table[place];
        if (block == no_values)
            continue;
        unsigned cell = 0;
        while (cell < BLOCK && block[cell] == 0.0)
            cell++;
        if (cell == BLOCK) {
            store_release(store, block);
            store->table[place] = (double *)no_values;
        }
    }
}

#endif

#endif
