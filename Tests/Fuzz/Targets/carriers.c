/* What carries frames, by blip.h alone: a hostile peer on a transport of the program (versions 1 to 3) or on the bare
 * stream of a listener of BLIP 1, in pieces of any size; and two ends that are joined in memory. Checked: nothing traps
 * or hangs, what was accepted completes exactly once, the close callback comes once and last, contexts are released. */

#define _GNU_SOURCE

#include <blip.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CHECK(condition_) do { if (!(condition_)) finding(#condition_, __LINE__); } while (0)

static void finding(const char *text, int line)
{
    fprintf(stderr, "carriers.c:%d: not true: %s\n", line, text);
    abort();
}

static const uint8_t *input;
static size_t input_size, input_at;

static uint8_t byte(void) { return input_at < input_size ? input[input_at++] : 0; }

static size_t bytes(uint8_t *to, size_t capacity)
{
    size_t size = byte();
    size = size < capacity ? size : capacity;
    for (size_t i = 0; i < size; i++)
        to[i] = byte();
    return size;
}

static blip_runtime *runtime;
static blip_connection *ends[2];
static blip_transport *transport;
static int closes[2], sent[2], completed[2], released, is_full, peer;
static uint32_t checksum;

static void turn(int times)
{
    while (times-- > 0)
        CHECK(blip_runtime_run_once(runtime, 0, NULL) == BLIP_OK);
}

static void did_close(blip_connection *connection, blip_status status, void *context)
{
    (void)connection, (void)status;
    CHECK(++*(int *)context == 1);
    int index = (int)((int *)context - closes);
    CHECK(sent[index] == completed[index]);
}

static void did_release(void *context) { (void)context, released++; }

static void did_complete(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    int *count = context;
    (void)connection, (void)request;
    CHECK(status == BLIP_OK || response == NULL);
    CHECK(++*count <= sent[count - completed]);
}

static blip_status answer(blip_connection *connection, blip_message *request, void *context)
{
    blip_slice body;
    (void)connection, (void)context;
    CHECK(blip_message_body(request, &body) == BLIP_OK);
    return body.size % 5 == 4 ? -1 : body.size % 5 == 3 ? BLIP_OK : blip_message_respond_data(request, body, blip_text("x"));
}

static bool decide(blip_connection *connection, void *context)
{
    (void)connection, (void)context;
    return (byte() & 3) != 0;
}

static blip_status carry(blip_transport *of, blip_slice frame, void *context)
{
    (void)context;
    CHECK(of == transport && frame.size > 0);
    return is_full == 1 ? BLIP_AGAIN : is_full == 2 ? BLIP_ERROR_NETWORK : BLIP_OK;
}

static void did_accept(blip_connection *connection, void *context)
{
    (void)context;
    if (ends[0] == NULL)
        ends[0] = blip_connection_retain(connection);
}

static void watch(int index)
{
    blip_connection_set_default_handler(ends[index], 0, answer, NULL, NULL);
    blip_connection_set_close_callback(ends[index], did_close, &closes[index], did_release);
    blip_connection_set_close_request_callback(ends[index], decide, NULL, NULL);
}

static void request(int index)
{
    static const uint8_t zeros[70000];
    blip_message *message = NULL;
    if (ends[index] == NULL || blip_request_new(blip_text("any"), &message) != BLIP_OK)
        return;
    uint8_t shape = byte();
    blip_slice body = {zeros, shape & 1 ? byte() * 270u : byte()};
    blip_message_set_body(message, body);
    blip_message_set_compressed(message, shape & 2);
    blip_message_set_urgent(message, shape & 4);
    if (blip_connection_send(ends[index], message, did_complete, &completed[index], NULL) == BLIP_OK)
        sent[index]++;
    blip_message_release(message);
}

/* The zlib checksum, bit by bit. */
static void add_checksum(const uint8_t *data, size_t size)
{
    uint32_t value = ~checksum;
    for (size_t i = 0; i < size; i++) {
        value ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (0xEDB88320u & -(value & 1));
    }
    checksum = ~value;
}

/* A frame that may be good: number, flags and payload from the input. */
static size_t make_frame(int version, uint8_t *frame)
{
    uint8_t shape = byte();
    size_t size = 0;
    if (version == 1) {
        uint16_t flags = (uint16_t)(byte() << 8 | byte());
        memcpy(frame, "\x9B\x34\xF2\x06\0\0\0", 7);
        frame[7] = byte();
        frame[8] = (uint8_t)(flags >> 8 & 1), frame[9] = (uint8_t)flags;
        size = 12 + bytes(frame + 12, 250);
        frame[10] = (uint8_t)(size >> 8), frame[11] = (uint8_t)size;
    } else {
        frame[size++] = byte() & 0x7F;
        uint8_t flags = byte();
        frame[size++] = flags;
        if (flags & 0x80)
            frame[size++] = 1;
        size_t payload = bytes(frame + size, 250);
        if (version == 3 && (flags & 7) < 3) {
            if ((flags & 8) == 0)
                add_checksum(frame + size, payload);
            size += payload;
            for (int i = 0; i < 4; i++)
                frame[size++] = (uint8_t)(checksum >> (24 - 8 * i));
        } else {
            size += payload;
        }
    }
    if (shape >= 0xF8)
        frame[shape % size] ^= byte();
    return shape == 0xF7 ? size / 2 : size;
}

static void deliver(int version, const uint8_t *frame, size_t size)
{
    if (transport != NULL) {
        blip_slice slice = {frame, size};
        blip_status status = blip_transport_did_receive(transport, slice);
        CHECK(status == BLIP_OK || status == BLIP_AGAIN || status == BLIP_ERROR_CLOSED || status == BLIP_ERROR_STATE);
    } else if (peer >= 0) {
        size_t piece = version == 1 ? 1 + byte() % 64 : size;
        for (size_t at = 0; at < size; at += piece) {
            ssize_t done = send(peer, frame + at, at + piece < size ? piece : size - at, MSG_DONTWAIT | MSG_NOSIGNAL);
            turn(1);
            if (done < 0)
                return;
        }
    }
}

static void open_transport(int version)
{
    const char *protocols[] = {"BLIP_1", "BLIP", "BLIP_3"};
    CHECK(blip_transport_new(carry, NULL, did_release, &transport) == BLIP_OK);
    CHECK(blip_connection_from_transport(runtime, transport, blip_text(protocols[version - 1]), NULL, &ends[0]) == BLIP_OK);
    watch(0);
    CHECK(blip_transport_did_open(transport) == BLIP_OK);
    turn(2);
}

static blip_listener *open_stream(void)
{
    static char path[64];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    blip_listener_options *options = blip_listener_options_new();
    blip_listener *listener = NULL;
    snprintf(path, sizeof path, "/tmp/blip-fuzz-%d", (int)getpid());
    unlink(path);
    blip_listener_options_set_blip1(options, true);
    blip_listener_options_set_websocket(options, byte() & 1);
    CHECK(blip_listener_new(runtime, options, &listener) == BLIP_OK);
    blip_listener_options_release(options);
    blip_listener_set_default_handler(listener, 0, answer, NULL, NULL);
    blip_listener_set_open_callback(listener, did_accept, NULL, NULL);
    blip_listener_set_close_request_callback(listener, decide, NULL, NULL);
    CHECK(blip_listener_start_unix(listener, blip_text(path)) == BLIP_OK);
    memcpy(address.sun_path, path, sizeof path);
    peer = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(peer >= 0);
    turn(1);
    CHECK(connect(peer, (struct sockaddr *)&address, sizeof address) == 0);
    turn(3);
    unlink(path);
    return listener;
}

static void step(int version)
{
    uint8_t frame[512], what = byte();
    switch (what % 12) {
    case 0: case 1: case 2: case 3: deliver(version, frame, make_frame(version, frame)); break;
    case 4: deliver(version, frame, bytes(frame, sizeof frame)); break;
    case 5: request(what >> 7); break;
    case 6: turn(1 + what / 64); break;
    case 7:
        is_full = what >> 6;
        if (transport != NULL && is_full == 0)
            blip_transport_did_drain(transport);
        break;
    case 8: blip_connection_say_bye(ends[what >> 7], NULL, NULL, NULL); break;
    case 9: blip_connection_answer_close_request(ends[what >> 7], what & 16); break;
    case 10:
        if ((what & 0x30) == 0)
            blip_connection_close_gracefully(ends[what >> 7], what & 64 ? 0 : -1);
        break;
    case 11:
        if (what == 11 + 12 * 20)
            blip_connection_close(ends[what & 1], 1000, blip_text("fuzz"));
        else if (transport != NULL && what == 11)
            blip_transport_did_close(transport, byte() & 1 ? BLIP_OK : BLIP_ERROR_CONNECTION_LOST);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input = data, input_size = size, input_at = 0;
    memset(closes, 0, sizeof closes);
    memset(sent, 0, sizeof sent);
    memset(completed, 0, sizeof completed);
    released = is_full = 0;
    checksum = 0, peer = -1, transport = NULL, ends[0] = ends[1] = NULL;
    blip_runtime_options *options = blip_runtime_options_new();
    blip_runtime_options_set_threads(options, 0);
    CHECK(blip_runtime_new(options, &runtime) == BLIP_OK);
    blip_runtime_options_release(options);
    uint8_t mode = byte() % 5;
    int version = mode < 3 ? mode + 1 : 1, expected = 0;
    blip_listener *listener = NULL;
    if (mode < 3) {
        open_transport(version);
        expected = 2;
    } else if (mode == 3) {
        listener = open_stream();
    } else {
        CHECK(blip_connection_pair(runtime, runtime, NULL, &ends[0], &ends[1]) == BLIP_OK);
        watch(0);
        watch(1);
        expected = 2;
    }
    while (input_at < input_size)
        step(version);
    turn(4);
    if (peer >= 0)
        close(peer);
    blip_connection_close(ends[0], 1000, blip_text(""));
    turn(8);
    blip_listener_release(listener);
    CHECK(blip_runtime_stop(runtime, 1000) == BLIP_OK);
    CHECK(sent[0] == completed[0] && sent[1] == completed[1]);
    CHECK(mode == 3 || closes[0] == 1);
    CHECK(mode != 4 || closes[1] == 1);
    for (int i = 0; i < 2; i++)
        blip_connection_release(ends[i]);
    blip_transport_release(transport);
    CHECK(released == expected);
    blip_runtime_release(runtime);
    return 0;
}
