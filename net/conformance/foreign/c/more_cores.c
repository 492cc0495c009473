/* Tells a program that has this preloaded that it may run on CORES cores, more than the machine has. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>

int sched_getaffinity(pid_t process, size_t size, cpu_set_t *set)
{
    const char *cores = getenv("CORES");
    (void)process;
    memset(set, 0, size);
    for (int core = 0; cores && core < atoi(cores); core++)
        CPU_SET_S(core, size, set);
    return 0;
}
