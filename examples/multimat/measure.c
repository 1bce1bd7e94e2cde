/* What a run is judged by: its content, its zeros, its memory. */

#include "mesh.h"

uint64_t checksum(const struct mesh *mesh, const struct options *options)
{
    uint64_t sum = 0;
    for (size_t cell = mesh->plane; cell < mesh->cells - mesh->plane; cell++) {
        uint64_t bits, at = (uint64_t)mesh->first_z * mesh->plane + cell;
        for (int material = 0; material < MATERIALS; material++)
            for (int kind = 0; kind < KINDS; kind++) {
                double value = get(&mesh->values[material][kind], cell);
                memcpy(&bits, &value, 8);
                sum += mix(bits ^ mix(at * 64 + (uint64_t)(material * KINDS + kind)));
            }
        for (int field = 0; field < options->fields; field++) {
            memcpy(&bits, &mesh->fields[field][cell], 8);
            sum += mix(bits ^ mix(at * 64 + 32 + (uint64_t)field));
        }
    }
    for (size_t at = 0; at < (size_t)options->tables << 20; at += 8) {
        uint64_t entry;
        memcpy(&entry, mesh->tables + at, 8);
        sum += mix(entry ^ at);
    }
    return sum;
}

/* Shares of this rank's values that are zero, and of 4 KiB pages that hold nothing else: what a layer in the code can
 * save, and what can be saved page by page. */
void count_zeros(const struct mesh *mesh, uint64_t counts[4])
{
    size_t per_page = 4096 / sizeof(double);
    memset(counts, 0, 4 * sizeof(*counts));
    for (int material = 0; material < MATERIALS; material++)
        for (int kind = 0; kind < KINDS; kind++)
            for (size_t cell = 0; cell < mesh->cells; cell += per_page) {
                uint64_t zeros = 0;
                for (size_t at = cell; at < cell + per_page && at < mesh->cells; at++)
                    zeros += get(&mesh->values[material][kind], at) == 0.0;
                counts[0] += zeros;
                counts[1] += per_page;
                counts[2] += zeros == per_page;
                counts[3]++;
            }
}

/* A value of /proc/self/smaps_rollup in bytes: RSS counts a merged page in every process, PSS divides it among them. */
uint64_t own_memory(const char *key)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':')
            sscanf(line + strlen(key) + 1, "%llu", &kib);
    if (file != NULL)
        fclose(file);
    return (uint64_t)kib * 1024;
}
