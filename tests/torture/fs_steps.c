/* Counts a program's file-system steps below one folder and interferes with one of them.
 *
 * Preloaded (LD_PRELOAD), it stands before the C library's calls that change files, so that Python, HDF5 and
 * safetensors are met alike. The plan is shared memory in a file, so that every process of a command counts together.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum action { COUNT = 0, KILL = 1, TEAR = 2, FILL = 3, SIZE = 4 };

struct plan {
    atomic_long steps;  /* seen so far */
    atomic_long bytes;  /* written so far */
    long at;            /* the step that is interfered with, from 1; of SIZE, the bytes that the disk takes */
    long action;        /* KILL before it; TEAR: half of a write, then kill; FILL: no space from this write on;
                           SIZE: no space once so many bytes were written, the last write being cut to what fits */
    char root[PATH_MAX];
};

static struct plan *plan;
static __thread int inside;

void fs_steps_begin(const char *path) {
    int descriptor = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR, 0);
    void *shared = mmap(NULL, sizeof(struct plan), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    plan = shared == MAP_FAILED ? NULL : shared;
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("FS_STEPS");
    if (path) fs_steps_begin(path);
}

static int is_below(const char *path) {
    size_t length = strlen(plan->root);
    return strncmp(path, plan->root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int opened_below(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

static int named_below(int folder, const char *name) {
    char path[2 * PATH_MAX];
    if (name[0] == '/') return is_below(name);
    if (folder != AT_FDCWD) return opened_below(folder);
    if (!getcwd(path, PATH_MAX)) return 0;
    return is_below(path);
}

static void die(void) { kill(0, SIGKILL); for (;;) pause(); }

/* 0: go on; 1: half of this write, then die; 2: there is no space. */
static int step(int needs_space) {
    long number = atomic_fetch_add(&plan->steps, 1) + 1;
    if (plan->action == KILL && number == plan->at) die();
    if (plan->action == TEAR && number == plan->at) { if (needs_space != 2) die(); return 1; }
    if (plan->action == FILL && number >= plan->at && needs_space) return 2;
    if (plan->action == SIZE && plan->bytes >= plan->at && needs_space) return 2;
    return 0;
}

/* How many of `count` bytes the disk takes; 0 where it takes none. */
static size_t fitting(size_t count) {
    long before = atomic_fetch_add(&plan->bytes, (long)count);
    if (plan->action != SIZE || before + (long)count <= plan->at) return count;
    return before < plan->at ? (size_t)(plan->at - before) : 0;
}

static size_t total(const struct iovec *parts, int count) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += parts[i].iov_len;
    return bytes;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define WATCHED(condition) (plan && !inside && (condition))
#define FULL do { errno = ENOSPC; return -1; } while (0)

#define NAMED(result, name, parameters, folder, path, needs_space, call)          \
    result name parameters {                                                      \
        REAL(name);                                                               \
        if (WATCHED(named_below(folder, path)) && step(needs_space) == 2) FULL;   \
        return real call;                                                         \
    }

#define CHANGES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))

#define OPENS(name, parameters, folder, call)                                              \
    int name parameters {                                                                  \
        REAL(name);                                                                        \
        mode_t mode = 0;                                                                   \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                             \
            va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); \
        }                                                                                  \
        if (WATCHED(CHANGES(flags) && named_below(folder, path)) && step((flags & O_CREAT) != 0) == 2) { \
            struct stat known;                                                             \
            if (fstatat(folder, path, &known, 0) != 0) FULL; /* an existing file needs no space to be opened */ \
        }                                                                                  \
        return real call;                                                                  \
    }

OPENS(open, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPENS(openat, (int folder, const char *path, int flags, ...), folder, (folder, path, flags, mode))
OPENS(openat64, (int folder, const char *path, int flags, ...), folder, (folder, path, flags, mode))

/* `part` is the call with `fits` in place of all bytes, or that which makes half a write where there is no such call. */
#define WRITES(name, parameters, size, call, half, part)           \
    ssize_t name parameters {                                      \
        REAL(name);                                                \
        if (WATCHED(opened_below(descriptor))) {                   \
            int found = step(2);                                   \
            if (found == 1) { inside = 1; real half; die(); }      \
            if (found == 2) FULL;                                  \
            size_t fits = fitting(size);                           \
            if (fits == 0 && size > 0) FULL;                       \
            if (fits < size) return real part;                     \
        }                                                          \
        return real call;                                          \
    }

WRITES(write, (int descriptor, const void *bytes, size_t count), count, (descriptor, bytes, count),
       (descriptor, bytes, count / 2), (descriptor, bytes, fits))
WRITES(pwrite, (int descriptor, const void *bytes, size_t count, off_t at), count, (descriptor, bytes, count, at),
       (descriptor, bytes, count / 2, at), (descriptor, bytes, fits, at))
WRITES(pwrite64, (int descriptor, const void *bytes, size_t count, off64_t at), count, (descriptor, bytes, count, at),
       (descriptor, bytes, count / 2, at), (descriptor, bytes, fits, at))
WRITES(writev, (int descriptor, const struct iovec *parts, int count), total(parts, count), (descriptor, parts, count),
       (descriptor, parts, count / 2), (descriptor, parts, count / 2))
WRITES(sendfile, (int descriptor, int from, off_t *at, size_t count), count, (descriptor, from, at, count),
       (descriptor, from, at, count / 2), (descriptor, from, at, fits))
WRITES(sendfile64, (int descriptor, int from, off64_t *at, size_t count), count, (descriptor, from, at, count),
       (descriptor, from, at, count / 2), (descriptor, from, at, fits))
WRITES(copy_file_range, (int from, off64_t *from_at, int descriptor, off64_t *at, size_t count, unsigned flags), count,
       (from, from_at, descriptor, at, count, flags), (from, from_at, descriptor, at, count / 2, flags),
       (from, from_at, descriptor, at, fits, flags))

#define OPENED(name, parameters, needs_space, call)                                     \
    int name parameters {                                                               \
        REAL(name);                                                                     \
        if (WATCHED(opened_below(descriptor)) && step(needs_space) == 2) FULL;          \
        return real call;                                                               \
    }

OPENED(fsync, (int descriptor), 0, (descriptor))
OPENED(fdatasync, (int descriptor), 0, (descriptor))
OPENED(ftruncate, (int descriptor, off_t length), 0, (descriptor, length))
OPENED(ftruncate64, (int descriptor, off64_t length), 0, (descriptor, length))
OPENED(fchmod, (int descriptor, mode_t mode), 0, (descriptor, mode))

NAMED(int, rename, (const char *old, const char *path), AT_FDCWD, path, 0, (old, path))
NAMED(int, renameat, (int from, const char *old, int folder, const char *path), folder, path, 0, (from, old, folder, path))
NAMED(int, mkdir, (const char *path, mode_t mode), AT_FDCWD, path, 1, (path, mode))
NAMED(int, mkdirat, (int folder, const char *path, mode_t mode), folder, path, 1, (folder, path, mode))
NAMED(int, unlink, (const char *path), AT_FDCWD, path, 0, (path))
NAMED(int, unlinkat, (int folder, const char *path, int flags), folder, path, 0, (folder, path, flags))
NAMED(int, rmdir, (const char *path), AT_FDCWD, path, 0, (path))
NAMED(int, truncate, (const char *path, off_t length), AT_FDCWD, path, 0, (path, length))
NAMED(int, chmod, (const char *path, mode_t mode), AT_FDCWD, path, 0, (path, mode))
NAMED(int, link, (const char *old, const char *path), AT_FDCWD, path, 1, (old, path))
NAMED(int, symlink, (const char *old, const char *path), AT_FDCWD, path, 1, (old, path))
