/* Knows nothing of KSM. Maps memory of several kinds, and prints for which of it huge pages are wanted. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define MIB (1ul << 20)

/* True if all bytes of a range lie in mappings with a flag of smaps. */
static int has(const char *flag, const void *start, size_t length) {
    FILE *smaps = fopen("/proc/self/smaps", "r");
    unsigned long first = (unsigned long)start, last = first + length, from = 0, to = 0, a, b;
    char line[4096], access[8];
    size_t sum = 0;
    while (fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx %7s", &a, &b, access) == 3) {
            from = a > first ? a : first;
            to = b < last ? b : last;
        } else if (!strncmp(line, "VmFlags:", 8) && strstr(line, flag) && from < to) {
            sum += to - from;
        }
    }
    fclose(smaps);
    return sum == length;
}

static char *map(const char *what, size_t length, int access, int flags) {
    char *memory = mmap(NULL, length, access, flags | MAP_ANONYMOUS, -1, 0);
    assert(memory != MAP_FAILED);
    if (what)
        printf("%s %d\n", what, has(" hg", memory, length));
    return memory;
}

int main(void) {
    const int both = PROT_READ | PROT_WRITE;
    setvbuf(stdout, NULL, _IOLBF, 4096);
    /* Each is kept from its neighbours by memory that nothing may touch. */
    char *grown = map("large", 5 * MIB + 4096, both, MAP_PRIVATE);
    map(NULL, 4096, PROT_NONE, MAP_PRIVATE);
    map("least", 2 * MIB, both, MAP_PRIVATE);
    map(NULL, 4096, PROT_NONE, MAP_PRIVATE);
    map("little", 2 * MIB - 4096, both, MAP_PRIVATE);
    map("shared", 4 * MIB, both, MAP_SHARED);
    map("read_only", 4 * MIB, PROT_READ, MAP_PRIVATE);
    map("stack", 8 * MIB, both, MAP_PRIVATE | MAP_STACK);
    map("unreserved", 4 * MIB, both, MAP_PRIVATE | MAP_NORESERVE);
    struct sysinfo host;
    sysinfo(&host);
    map("reservation", host.totalram * host.mem_unit + 64 * MIB, both, MAP_PRIVATE | MAP_NORESERVE);
    FILE *file = tmpfile();
    assert(ftruncate(fileno(file), 4 * MIB) == 0);
    printf("file %d\n", has(" hg", mmap(NULL, 4 * MIB, both, MAP_PRIVATE, fileno(file), 0), 4 * MIB));
    /* The program's own advice takes effect. */
    char *refused = map(NULL, 4 * MIB, both, MAP_PRIVATE);
    assert(madvise(refused, 4 * MIB, MADV_NOHUGEPAGE) == 0);
    printf("refused %d\n", has(" nh", refused, 4 * MIB));
    /* A mapping of any length stays one, which can grow and move. */
    grown[5 * MIB] = 'x';
    grown = mremap(grown, 5 * MIB + 4096, 40 * MIB, MREMAP_MAYMOVE);
    assert(grown != MAP_FAILED && grown[5 * MIB] == 'x');
    printf("grown %d\n", has(" hg", grown, 40 * MIB));
    return 0;
}
