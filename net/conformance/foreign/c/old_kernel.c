/* Makes the kernel look as old as OLD_KERNEL says to a program that has this preloaded: what io_uring had not got by
 * then is refused as that kernel would refuse it, and each refusal is told on stderr once. It stands before the C
 * library's syscall(), by which ringkeeper reaches io_uring. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* What a kernel has: flags of a new ring, features that it names, the last operation of io_uring_register. */
struct kernel {
    const char *version;
    unsigned flags, features, last_register;
};

static const struct kernel KERNELS[] = {
    {"5.8", 0x3f, 0x3f, 10},
    {"5.15", 0x7f, 0x7ff, 19},
    {"6.0", 0x1fff, 0x1fff, 25},
};

static const struct kernel *kernel(void)
{
    const char *version = getenv("OLD_KERNEL");
    for (size_t i = 0; version && i < sizeof KERNELS / sizeof *KERNELS; i++)
        if (!strcmp(version, KERNELS[i].version))
            return &KERNELS[i];
    fprintf(stderr, "old kernel: OLD_KERNEL has to be 5.8, 5.15 or 6.0\n");
    abort();
}

static long refuse(const char *what, int *told)
{
    if (!__atomic_exchange_n(told, 1, __ATOMIC_RELAXED))
        fprintf(stderr, "old kernel: %s has no %s\n", kernel()->version, what);
    errno = EINVAL;
    return -1;
}

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    static int flags_told, register_told, limit_told;
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (!real)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");

    struct io_uring_params *params = (struct io_uring_params *)a[1];
    if (number == SYS_io_uring_setup && params->flags & ~kernel()->flags)
        return refuse("such a flag of rings", &flags_told);
    if (number == SYS_io_uring_register && (unsigned)a[1] > kernel()->last_register)
        return refuse(a[1] == IORING_REGISTER_PBUF_RING ? "rings of buffers" : "such a registration", &register_told);
    if (number == SYS_io_uring_enter && a[3] & IORING_ENTER_EXT_ARG && !(kernel()->features & IORING_FEAT_EXT_ARG))
        return refuse("waits with a limit", &limit_told);

    long result = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_io_uring_setup && result >= 0)
        params->features &= kernel()->features;
    return result;
}
