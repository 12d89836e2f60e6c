/* The wire format of a consolidated pipe in its steady state, by hand on raw UCP: what a pipe can reach without any
 * library around it. One flag byte and the storage, two messages on one tag; busy polling; peer error handling.
 *
 *     reference server|client PORT
 *
 * The schedule, the counters and the JSON lines are those of examples/bench_peer.rs. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <ucp/api/ucp.h>

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

static ucp_worker_h worker;
static ucp_ep_h ep;
static ucp_conn_request_h request;
static volatile int broken;
static uint64_t send_tag, recv_tag;

static void check(ucs_status_t status, const char *what) {
    if (status != UCS_OK) {
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

static void failed(void *arg, ucp_ep_h e, ucs_status_t status) { broken = 1; }
static void connected(ucp_conn_request_h r, void *arg) { request = r; }

static void await(ucs_status_ptr_t r, const char *what) {
    if (r == NULL) return;
    if (UCS_PTR_IS_ERR(r)) check(UCS_PTR_STATUS(r), what);
    ucs_status_t status;
    while ((status = ucp_request_check_status(r)) == UCS_INPROGRESS) {
        if (broken) check(UCS_ERR_CONNECTION_RESET, what);
        ucp_worker_progress(worker);
    }
    ucp_request_free(r);
    check(status, what);
}

static void send_message(const void *bytes, size_t size) {
    static const unsigned char same_schema = 1;
    ucp_request_param_t param = {0};
    ucs_status_ptr_t flag = ucp_tag_send_nbx(ep, &same_schema, 1, send_tag, &param);
    ucs_status_ptr_t storage = ucp_tag_send_nbx(ep, bytes, size, send_tag, &param);
    await(flag, "flag");
    await(storage, "storage");
}

static void recv_message(void *bytes, size_t size) {
    ucp_request_param_t param = {0};
    unsigned char flag = 0;
    await(ucp_tag_recv_nbx(worker, &flag, 1, recv_tag, UINT64_MAX, &param), "flag");
    if (flag != 1) check(UCS_ERR_INVALID_PARAM, "flag");
    await(ucp_tag_recv_nbx(worker, bytes, size, recv_tag, UINT64_MAX, &param), "storage");
}

static void stream(int sends, void *bytes, size_t size) {
    ucp_request_param_t param = {0};
    size_t length;
    if (sends) {
        await(ucp_stream_send_nbx(ep, bytes, size, &param), "stream");
    } else {
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_STREAM_RECV_FLAG_WAITALL;
        await(ucp_stream_recv_nbx(ep, bytes, size, &length, &param), "stream");
    }
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
        if ((counter & (UINT64_MAX >> 2)) != number) check(UCS_ERR_INVALID_PARAM, "order");
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
        if (echo != (phase << 62 | number)) check(UCS_ERR_INVALID_PARAM, "echo");
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

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: %s server|client PORT\n", argv[0]), 2;
    int serves = !strcmp(argv[1], "server");
    double warm = atof(chosen("B_TW", "0.1")), measured = atof(chosen("B_TM", "0.4"));

    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_STREAM};
    ucp_config_t *config;
    ucp_context_h context;
    check(ucp_config_read(NULL, NULL, &config), "config");
    check(ucp_init(&params, config, &context), "init");
    ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
    check(ucp_worker_create(context, &worker_params, &worker), "worker");

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ucs_sock_addr_t sockaddr = {(struct sockaddr *)&address, sizeof address};
    ucp_ep_params_t ep_params = {
        .field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER, .err_handler.cb = failed,
    };
    if (serves) {
        ucp_listener_h listener;
        ucp_listener_params_t listen = {
            .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
            .sockaddr = sockaddr, .conn_handler.cb = connected,
        };
        check(ucp_listener_create(worker, &listen, &listener), "listener");
        printf("{\"ready\":1}\n"), fflush(stdout);
        while (!request) ucp_worker_progress(worker);
        ep_params.field_mask |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
        ep_params.conn_request = request;
    } else {
        ep_params.field_mask |= UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
        ep_params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
        ep_params.sockaddr = sockaddr;
    }
    check(ucp_ep_create(worker, &ep_params, &ep), "endpoint");
    uint64_t mine[2] = {(uint64_t)getpid() << 20 | serves, 0}, theirs[2];
    stream(serves, serves ? mine : theirs, sizeof mine);
    stream(!serves, serves ? theirs : mine, sizeof mine);
    send_tag = theirs[0], recv_tag = mine[0];

    for (size_t i = 0; i < sizeof WORKS / sizeof *WORKS; i++) {
        const work_t *w = &WORKS[i];
        if (!strstr(chosen("B_WORKS", "W0,W1,W2,W3,W4,W5"), w->name)) continue;
        size_t mapped = (w->size + 4095) & ~(size_t)4095;
        unsigned char *bytes = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(bytes, 1, mapped);
        if (strstr(chosen("B_METRICS", "thr,lat"), "lat")) {
            if (serves) latency_server(w, bytes);
            else latency_client(w, bytes, warm, measured);
        }
        if (strstr(chosen("B_METRICS", "thr,lat"), "thr")) {
            if (serves) throughput_server(w, bytes);
            else throughput_client(w, bytes, warm, measured);
        }
        fflush(stdout);
        munmap(bytes, mapped);
    }
    /* Neither end leaves while the other still needs it. */
    unsigned char end = 0;
    stream(serves, &end, 1);
    stream(!serves, &end, 1);
    return 0;
}
