/* The wire format of a consolidated pipe in its steady state, by hand on raw UCP: what a pipe can reach without any
 * library around it. One flag byte and the storage, two messages on one tag; busy polling; peer error handling.
 *
 *     reference server|client PORT
 *
 * The schedule, the counters and the JSON lines are those of examples/bench_peer.rs. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ucp/api/ucp.h>
#include "schedule.h"

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

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: %s server|client PORT\n", argv[0]), 2;
    int serves = !strcmp(argv[1], "server");

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

    run_schedule(serves);
    /* Neither end leaves while the other still needs it. */
    unsigned char end = 0;
    stream(serves, &end, 1);
    stream(!serves, &end, 1);
    return 0;
}
