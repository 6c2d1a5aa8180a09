#define _GNU_SOURCE

#include "test.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_SKIPPED = 77, EXIT_TIMED_OUT = 124 };

static struct test *first_test, **last_test = &first_test;
static atomic_int failures;
static const char *_Atomic last_file = "";
static atomic_int last_line;
static bool in_one_process;
const char *(*test_status_name)(int32_t status);

static const char *status_name(int32_t status)
{
    return test_status_name != NULL ? test_status_name(status) : "?";
}

void test_register(struct test *test)
{
    *last_test = test;
    last_test = &test->next;
}

/* One write a line, so that lines of several threads do not mix. */
void test_note(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(line + 2, sizeof line - 3, format, arguments);
    va_end(arguments);
    if (size < 0)
        return;
    if ((size_t)size > sizeof line - 4)
        size = (int)sizeof line - 4;
    memcpy(line, "# ", 2);
    line[size + 2] = '\n';
    fflush(stdout);
    ssize_t written = write(STDOUT_FILENO, line, (size_t)size + 3);
    (void)written;
}

int test_failures(void)
{
    return atomic_load(&failures);
}

/* A check that fails in a loop must not drown the others. */
static bool mark(bool held, const char *file, int line)
{
    atomic_store_explicit(&last_file, file, memory_order_relaxed);
    atomic_store_explicit(&last_line, line, memory_order_relaxed);
    if (held)
        return true;
    return atomic_fetch_add(&failures, 1) >= 40;
}

bool test_check(bool held, const char *file, int line, const char *text)
{
    if (!mark(held, file, line))
        test_note("%s:%d: %s does not hold", file, line, text);
    return held;
}

bool test_check_int(int64_t left, int64_t right, const char *file, int line, const char *text)
{
    if (!mark(left == right, file, line))
        test_note("%s:%d: %s: %" PRId64 " and %" PRId64, file, line, text, left, right);
    return left == right;
}

bool test_check_at_least(int64_t left, int64_t right, const char *file, int line, const char *text)
{
    if (!mark(left >= right, file, line))
        test_note("%s:%d: %s: %" PRId64 " and %" PRId64, file, line, text, left, right);
    return left >= right;
}

bool test_check_at_most(int64_t left, int64_t right, const char *file, int line, const char *text)
{
    if (!mark(left <= right, file, line))
        test_note("%s:%d: %s: %" PRId64 " and %" PRId64, file, line, text, left, right);
    return left <= right;
}

bool test_check_pointer(const void *left, const void *right, const char *file, int line, const char *text)
{
    if (!mark(left == right, file, line))
        test_note("%s:%d: %s: %p and %p", file, line, text, left, right);
    return left == right;
}

bool test_check_status(int32_t left, int32_t right, const char *file, int line, const char *text)
{
    if (!mark(left == right, file, line))
        test_note("%s:%d: %s: %" PRId32 " (%s) and %" PRId32 " (%s)", file, line, text, left,
            status_name(left), right, status_name(right));
    return left == right;
}

bool test_check_bytes(const void *left, size_t left_size, const void *right, size_t right_size, const char *file,
    int line, const char *text)
{
    bool held = left_size == right_size && (left_size == 0 || memcmp(left, right, left_size) == 0);
    if (!mark(held, file, line))
        test_note("%s:%d: %s: %zu bytes \"%.*s\" and %zu bytes \"%.*s\"", file, line, text, left_size,
            (int)(left_size > 200 ? 200 : left_size), left_size ? (const char *)left : "", right_size,
            (int)(right_size > 200 ? 200 : right_size), right_size ? (const char *)right : "");
    return held;
}

void test_stop(void)
{
    test_note("stopped there");
    fflush(NULL);
    _exit(EXIT_FAILED);
}

void test_skip(const char *why)
{
    test_note("skipped: %s", why);
    fflush(NULL);
    if (!in_one_process)
        _exit(EXIT_SKIPPED);
}

static void time_is_up(int number)
{
    char line[300];
    (void)number;
    /* snprintf is not promised to be safe here; the process is lost anyway. */
    int size = snprintf(line, sizeof line, "# timed out; last check: %s:%d\n", last_file, last_line);
    ssize_t written = write(STDOUT_FILENO, line, (size_t)size);
    (void)written;
    if (getenv("TEST_ABORT") != NULL)
        abort();
    _exit(EXIT_TIMED_OUT);
}

static int run_here(const struct test *test, unsigned seconds)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = time_is_up;
    sigaction(SIGALRM, &action, NULL);
    int before = test_failures();
    alarm(seconds);
    test->run();
    alarm(0);
    return test_failures() > before ? EXIT_FAILED : 0;
}

static int run_apart(const struct test *test, unsigned seconds)
{
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        test_note("fork failed");
        return EXIT_FAILED;
    }
    if (child == 0)
        exit(run_here(test, seconds));
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        continue;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    test_note("killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    return EXIT_FAILED;
}

static bool is_wanted(const char *name, char **parts)
{
    if (*parts == NULL)
        return true;
    for (; *parts != NULL; parts++)
        if (strstr(name, *parts) != NULL)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    bool list = false;
    unsigned limit = 0, scale = 1;
    int option;
    while ((option = getopt(argc, argv, "l1t:")) != -1) {
        switch (option) {
        case 'l': list = true; break;
        case '1': in_one_process = true; break;
        case 't': limit = (unsigned)strtoul(optarg, NULL, 10); break;
        default: return 2;
        }
    }
    if (getenv("TEST_TIME_SCALE") != NULL)
        scale = (unsigned)strtoul(getenv("TEST_TIME_SCALE"), NULL, 10);
    unsigned count = 0, number = 0, failed = 0, skipped = 0;
    for (struct test *test = first_test; test != NULL; test = test->next)
        count += is_wanted(test->name, argv + optind);
    if (!list)
        printf("1..%u\n", count);
    for (struct test *test = first_test; test != NULL; test = test->next) {
        if (!is_wanted(test->name, argv + optind))
            continue;
        if (list) {
            puts(test->name);
            continue;
        }
        unsigned seconds = (limit != 0 ? limit : test->seconds) * scale;
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        int result = in_one_process ? run_here(test, seconds) : run_apart(test, seconds);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double taken = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
        bool skip = result == EXIT_SKIPPED;
        printf("%s %u - %s%s (%.2f s)\n", result == 0 || skip ? "ok" : "not ok", ++number, test->name,
            skip ? " # SKIP" : "", taken);
        fflush(stdout);
        failed += result != 0 && !skip;
        skipped += skip;
    }
    if (list)
        return 0;
    printf("# %u passed, %u failed", number - failed - skipped, failed);
    if (skipped != 0)
        printf(", %u skipped", skipped);
    putchar('\n');
    return failed != 0;
}
