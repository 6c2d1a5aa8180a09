/* What zlib at level 6 makes of the bodies that echo_client -z sends: one deflate stream over all of them, flushed
 * after each frame, as BLIP 3 compresses.
 *
 *     zlib_reference [-b body-bytes] [-n bodies] [-f frame-bytes] [-l level]
 *
 * Prints one JSON object: bytes on the wire per message with its properties, frame headers and checksums, as a client
 * sends it and as a server does, and how fast zlib is at it. */

#include "json_bodies.h"

#include <unistd.h>
#include <zlib.h>

enum { TRAILER = 4, CHECKSUM = 4, FRAME_HEADER = 3 };

/* RFC 6455 §5.2. */
static uint64_t websocket_header(uint64_t payload, bool masked)
{
    return (payload < 126 ? 2u : payload < 65536 ? 4u : 10u) + (masked ? 4u : 0u);
}

int main(int argc, char **argv)
{
    static const unsigned char properties[] = "\015Profile\0echo";
    size_t body_size = 1024, frame_size = 16384;
    uint64_t messages = 20000;
    int level = 6, option;
    while ((option = getopt(argc, argv, "b:n:f:l:")) != -1) {
        switch (option) {
        case 'b': body_size = (size_t)number(optarg); break;
        case 'n': messages = number(optarg); break;
        case 'f': frame_size = (size_t)number(optarg); break;
        case 'l': level = (int)number(optarg); break;
        default: return 2;
        }
    }
    struct bodies bodies = make_json_bodies(body_size);
    double wire[2] = {0};
    uint64_t took = 0;
    for (unsigned server = 0; server < 2; server++) {
        z_stream stream = {0};
        size_t head = server ? 1 : sizeof properties, size = head + bodies.size;
        unsigned char *message = room(size, 1), *out = room(2 * frame_size + 64, 1);
        if (deflateInit2(&stream, level, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
            die("zlib cannot start");
        if (!server)
            memcpy(message, properties, head);
        uint64_t begun = nanoseconds(), bytes = 0;
        for (uint64_t m = 0; m < messages; m++) {
            memcpy(message + head, bodies.bytes + m % bodies.count * bodies.size, bodies.size);
            for (size_t at = 0; at < size; at += frame_size) {
                stream.next_in = message + at;
                stream.avail_in = (uInt)(size - at < frame_size ? size - at : frame_size);
                stream.next_out = out;
                stream.avail_out = (uInt)(2 * frame_size + 64);
                deflate(&stream, Z_SYNC_FLUSH);
                uint64_t payload = (uint64_t)(stream.next_out - out) - TRAILER + CHECKSUM + FRAME_HEADER;
                bytes += payload + websocket_header(payload, !server);
            }
        }
        if (!server)
            took = nanoseconds() - begun;
        wire[server] = (double)bytes / (double)messages;
        deflateEnd(&stream);
        free(message);
        free(out);
    }
    printf("{\"wire_sent_per_message\": %.2f, \"wire_received_per_message\": %.2f, \"mb_per_s\": %.1f}\n", wire[0],
        wire[1], (double)(messages * bodies.size) / ((double)took / 1e9) / 1e6);
    return 0;
}
