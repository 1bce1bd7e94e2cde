/* Its first thread ends before the others do: the program ends with the last of them, and not later. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *work(void *unused) {
    char *volatile block = malloc(1 << 20);
    block[0] = 1;
    sleep(2);
    puts("the last one");
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_exit(NULL);
}
