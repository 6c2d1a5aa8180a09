/* A small harness. Each TEST runs in a process of its own, which ends when the test does, when REQUIRE fails or when
 * its time is up; so a crash or a hang is one failed test. Output is TAP, closed by "N passed, N failed".
 *
 *     program [-l] [-1] [-t seconds] [part of a name]...
 *
 * -l lists, -1 runs everything in this process (for debuggers and Valgrind), -t overrides the time limits. */

#ifndef TEST_H
#define TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define TEST_HAS_ADDRESS_SANITIZER true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEST_HAS_ADDRESS_SANITIZER true
#endif
#endif
#ifndef TEST_HAS_ADDRESS_SANITIZER
#define TEST_HAS_ADDRESS_SANITIZER false
#endif

/* Under either one, resident memory says nothing about the library. */
#if defined(__SANITIZE_THREAD__)
#define TEST_HAS_SANITIZER true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_HAS_SANITIZER true
#endif
#endif
#ifndef TEST_HAS_SANITIZER
#define TEST_HAS_SANITIZER TEST_HAS_ADDRESS_SANITIZER
#endif

struct test {
    const char *name;
    void (*run)(void);
    unsigned seconds;
    struct test *next;
};

void test_register(struct test *test);

/* TEST(name) has 20 seconds, TEST_SECONDS(name, n) has n. */
#define TEST_SECONDS(name_, seconds_) \
    static void name_(void); \
    __attribute__((constructor)) static void register_##name_(void) \
    { \
        static struct test test = {#name_, name_, seconds_, NULL}; \
        test_register(&test); \
    } \
    static void name_(void)
#define TEST(name_) TEST_SECONDS(name_, 20)

/* Each reports file and line of a failure with both values and goes on; any thread. The result: whether it held. */
bool test_check(bool held, const char *file, int line, const char *text);
bool test_check_int(int64_t left, int64_t right, const char *file, int line, const char *text);
bool test_check_at_least(int64_t left, int64_t right, const char *file, int line, const char *text);
bool test_check_at_most(int64_t left, int64_t right, const char *file, int line, const char *text);
bool test_check_pointer(const void *left, const void *right, const char *file, int line, const char *text);
bool test_check_status(int32_t left, int32_t right, const char *file, int line, const char *text);
bool test_check_bytes(const void *left, size_t left_size, const void *right, size_t right_size, const char *file,
    int line, const char *text);
/* How statuses are named in reports; set by the programs that link the library. */
extern const char *(*test_status_name)(int32_t status);
/* Ends the test. */
void test_stop(void);
void test_skip(const char *why);
/* A diagnostic line. */
void test_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
int test_failures(void);

#define CHECK(condition) test_check((condition), __FILE__, __LINE__, #condition)
#define CHECK_INT(left, right) \
    test_check_int((int64_t)(left), (int64_t)(right), __FILE__, __LINE__, #left " == " #right)
#define CHECK_AT_LEAST(left, right) \
    test_check_at_least((int64_t)(left), (int64_t)(right), __FILE__, __LINE__, #left " >= " #right)
#define CHECK_AT_MOST(left, right) \
    test_check_at_most((int64_t)(left), (int64_t)(right), __FILE__, __LINE__, #left " <= " #right)
#define CHECK_POINTER(left, right) test_check_pointer((left), (right), __FILE__, __LINE__, #left " == " #right)
#define CHECK_STATUS(left, right) \
    test_check_status((left), (right), __FILE__, __LINE__, #left " == " #right)
#define CHECK_OK(call) test_check_status((call), 0, __FILE__, __LINE__, #call " == BLIP_OK")
#define CHECK_TEXT(slice, text) test_check_text((slice), (text), __FILE__, __LINE__, #slice " == " #text)

#define REQUIRE(condition) do { if (!CHECK(condition)) test_stop(); } while (0)
#define REQUIRE_INT(left, right) do { if (!CHECK_INT(left, right)) test_stop(); } while (0)
#define REQUIRE_STATUS(left, right) do { if (!CHECK_STATUS(left, right)) test_stop(); } while (0)
#define REQUIRE_OK(call) do { if (!CHECK_OK(call)) test_stop(); } while (0)

#endif
