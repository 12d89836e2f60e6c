/* The schedule of examples/bench_schedule for a peer in C: what is sent, how long, and what is printed. The program that
 * includes this file says how a message travels, and calls run_schedule at both ends. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static void send_message(const void *bytes, size_t size);
/* Into memory of the receiver's. */
static void recv_message(void *bytes, size_t size);

typedef struct {
    const char *name;
    size_t size;
    int leaves;
    size_t min_warm, min_count;
} work_t;

static const work_t WORKS[] = {
    {"W0", 8, 1, 200, 200},        {"W1", 21504, 1, 200, 200},    {"W2", 1 << 20, 16, 32, 32},
    {"W3", 64u << 20, 1, 3, 5},    {"W4", 256000, 1000, 100, 100}, {"W5", 256u << 20, 4, 2, 3},
};
enum { LATENCIES = 200000 };
enum { WARM, MEASURED, LAST };

static void die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* One of the table, or BYTESxLEAVES, with the minimum counts of bench_schedule. */
static work_t workload(const char *name) {
    for (size_t i = 0; i < sizeof WORKS / sizeof *WORKS; i++)
        if (!strcmp(WORKS[i].name, name)) return WORKS[i];
    char *end;
    size_t bytes = strtoull(name, &end, 10);
    int shift = *end == 'k' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift) end++;
    bytes <<= shift;
    size_t leaves = *end == 'x' ? strtoull(end + 1, &end, 10) : 0;
    if (!leaves || *end || bytes / leaves < 8) die("no such workload");
    work_t w = {name, bytes / leaves / 8 * 8 * leaves, (int)leaves, 1, 2};
    if (w.size < 0x100000) w.min_warm = w.min_count = 100;
    else if (w.size < 0x4000000) w.min_warm = w.min_count = 16;
    else if (w.size < 0x40000000) w.min_warm = 2, w.min_count = 4;
    return w;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double cpu(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

static volatile uint64_t sink;

/* Reads one byte of each leaf, and the counter. */
static uint64_t touch(const unsigned char *bytes, const work_t *w) {
    uint64_t sum = 0, counter;
    for (int i = 0; i < w->leaves; i++) sum += *(volatile const unsigned char *)(bytes + i * (w->size / w->leaves));
    sink += sum;
    memcpy(&counter, bytes, 8);
    return counter;
}

static void set_counter(unsigned char *bytes, uint64_t phase, uint64_t number) {
    uint64_t counter = phase << 62 | number;
    memcpy(bytes, &counter, 8);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void throughput_client(const work_t *w, unsigned char *bytes, double warm, double measured) {
    int look_every = w->size <= 65536 ? 64 : 1;
    uint64_t phase = WARM, number = 0;
    size_t count = 0;
    double start = now(), from = 0, used = 0;
    for (;;) {
        set_counter(bytes, phase, number++);
        send_message(bytes, w->size);
        count++;
        if (phase == LAST) break;
        if (count % look_every) continue;
        double elapsed = now() - start;
        if (phase == WARM && elapsed >= warm && count >= w->min_warm) {
            phase = MEASURED, count = 0, start = from = now(), used = cpu();
        } else if (phase == MEASURED && elapsed >= measured && count >= w->min_count) {
            phase = LAST;
        }
    }
    printf("{\"side\":\"send\",\"w\":\"%s\",\"m\":\"thr\",\"t0\":%.6f,\"t1\":%.6f,\"cpu\":%.6f}\n", w->name, from, now(), cpu() - used);
}

static void throughput_server(const work_t *w, unsigned char *bytes) {
    size_t count = 0;
    int started = 0;
    double from = 0, used = 0;
    for (uint64_t number = 0;; number++) {
        recv_message(bytes, w->size);
        uint64_t counter = touch(bytes, w), phase = counter >> 62;
        if ((counter & (UINT64_MAX >> 2)) != number) die("a message is out of order");
        if (phase == WARM) continue;
        if (!started) {
            started = 1, from = now(), used = cpu();
            continue;
        }
        count++;
        if (phase == LAST) break;
    }
    printf("{\"side\":\"recv\",\"w\":\"%s\",\"m\":\"thr\",\"n\":%zu,\"size\":%zu,\"t0\":%.6f,\"t1\":%.6f,\"cpu\":%.6f}\n", w->name, count, w->size, from, now(), cpu() - used);
}

static void latency_client(const work_t *w, unsigned char *bytes, double warm, double measured) {
    double *times = malloc(LATENCIES * sizeof *times), start = now(), from = 0, used = 0;
    size_t count = 0, n = 0, min_warm = w->min_warm < 50 ? w->min_warm / 2 + 1 : 50;
    uint64_t phase = WARM;
    for (uint64_t number = 0;; number++) {
        set_counter(bytes, phase, number);
        double sent = now();
        send_message(bytes, w->size);
        recv_message(bytes, w->size);
        uint64_t echo = touch(bytes, w);
        double back = now();
        if (echo != (phase << 62 | number)) die("another echo");
        if (phase == LAST) break;
        if (phase == MEASURED) times[n++] = back - sent;
        count++;
        if (phase == WARM && back - start >= warm && count >= min_warm) {
            phase = MEASURED, count = 0, start = from = now(), used = cpu();
        } else if (phase == MEASURED && ((back - start >= measured && count >= w->min_count) || n == LATENCIES)) {
            phase = LAST;
        }
    }
    qsort(times, n, sizeof *times, ascending);
    printf("{\"side\":\"send\",\"w\":\"%s\",\"m\":\"lat\",\"n\":%zu,\"size\":%zu,\"p50\":%.3f,\"p99\":%.3f,\"min\":%.3f,\"t0\":%.6f,\"t1\":%.6f,\"cpu\":%.6f}\n",
           w->name, n, w->size, times[n / 2] / 2 * 1e6, times[(size_t)(n * 0.99)] / 2 * 1e6, times[0] / 2 * 1e6, from, now(), cpu() - used);
    free(times);
}

static void latency_server(const work_t *w, unsigned char *bytes) {
    for (;;) {
        recv_message(bytes, w->size);
        uint64_t counter = touch(bytes, w);
        send_message(bytes, w->size);
        if (counter >> 62 == LAST) break;
    }
}

static const char *chosen(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static void run_schedule(int serves) {
    double warm = atof(chosen("B_TW", "0.1")), measured = atof(chosen("B_TM", "0.4"));
    const char *metrics = chosen("B_METRICS", "thr,lat");
    for (char *name = strtok(strdup(chosen("B_WORKS", "W0,W1,W2,W3,W4,W5")), ","); name; name = strtok(NULL, ",")) {
        work_t work = workload(name), *w = &work;
        size_t mapped = (w->size + 4095) & ~(size_t)4095;
        unsigned char *bytes = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (bytes == MAP_FAILED) die("no memory");
        memset(bytes, 1, mapped);
        if (strstr(metrics, "lat")) {
            if (serves) latency_server(w, bytes);
            else latency_client(w, bytes, warm, measured);
        }
        if (strstr(metrics, "thr")) {
            if (serves) throughput_server(w, bytes);
            else throughput_client(w, bytes, warm, measured);
        }
        fflush(stdout);
        munmap(bytes, mapped);
    }
}
