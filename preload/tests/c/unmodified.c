/* A program that knows nothing of the library: fills memory, of which every second stretch is zero, says so, and checks it when it
 * is told to; so does a child. One thread writes all the while. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES (64ul << 20 >> 12)
#define RUN 48

static unsigned char *memory;
static atomic_int ends;
static unsigned long written[256];

static unsigned char expected(size_t page) { return page / RUN % 2 ? 0 : 1 + page % 251; }

static unsigned long hash_of(void) {
    unsigned long hash = 14695981039346656037ul;
    for (size_t at = 0; at < PAGES * PAGE / 8; at++)
        hash = (hash ^ ((unsigned long *)memory)[at]) * 1099511628211ul;
    return hash;
}

/* Writes into its own memory, zero at times. */
static void *writer(void *own) {
    volatile unsigned long *words = own;
    for (unsigned long turn = 0; !ends; turn++) {
        size_t page = turn * 7919 % 256;
        words[page * 512 + 3] = written[page] = turn % 3 ? 0 : turn;
        if (turn % 4096 == 0)
            usleep(1000);
    }
    return NULL;
}

int main(void) {
    char line[16];
    pthread_t thread;
    unsigned char *own = malloc(256 * PAGE + PAGE);
    own = (unsigned char *)(((size_t)own + PAGE - 1) & ~(PAGE - 1));
    memset(own, 0, 256 * PAGE);
    memory = malloc(PAGES * PAGE + PAGE);
    memory = (unsigned char *)(((size_t)memory + PAGE - 1) & ~(PAGE - 1));
    for (size_t page = 0; page < PAGES; page++)
        memset(memory + page * PAGE, expected(page), PAGE);
    unsigned long before = hash_of();
    pthread_create(&thread, NULL, writer, own);
    printf("ready\n");
    fflush(stdout);
    assert(fgets(line, sizeof line, stdin));
    assert(hash_of() == before);
    pid_t child = fork();
    if (child == 0)
        _exit(hash_of() == before ? 0 : 1);
    int status;
    assert(waitpid(child, &status, 0) == child && status == 0);
    ends = 1;
    pthread_join(thread, NULL);
    for (size_t page = 0; page < 256; page++)
        assert(((unsigned long *)own)[page * 512 + 3] == written[page]);
    for (size_t page = 0; page < PAGES; page++)
        memory[page * PAGE + 17] ^= 0x55;
    for (size_t page = 0; page < PAGES; page++)
        for (size_t at = 0; at < PAGE; at++)
            assert(memory[page * PAGE + at] == (expected(page) ^ (at == 17 ? 0x55 : 0)));
    printf("checked\n");
    return 0;
}
