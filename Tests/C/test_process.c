/* What the library does to its process: nothing. Signals, masks, SIGPIPE, fork. */

#define _GNU_SOURCE

#include "support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct dispositions {
    struct sigaction actions[NSIG];
    sigset_t mask;
};

static void record(struct dispositions *recorded)
{
    memset(recorded, 0, sizeof *recorded);
    for (int number = 1; number < NSIG; number++)
        sigaction(number, NULL, &recorded->actions[number]);
    sigprocmask(SIG_BLOCK, NULL, &recorded->mask);
}

static void check_unchanged(const struct dispositions *before)
{
    struct dispositions now;
    record(&now);
    for (int number = 1; number < NSIG; number++) {
        if (number == SIGALRM)
            continue;
        if (!CHECK(now.actions[number].sa_handler == before->actions[number].sa_handler))
            test_note("signal %d", number);
        CHECK_INT(sigismember(&now.mask, number), sigismember(&before->mask, number));
    }
}

static void use_the_library(void)
{
    struct pair pair;
    struct outcome outcome;
    pair_open(&pair, NULL);
    CHECK_OK(send_request(pair.client, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    pair_close(&pair);
}

TEST(signal_dispositions_and_masks_are_left_alone)
{
    struct dispositions before;
    record(&before);
#ifndef __SANITIZE_ADDRESS__ /* which has handlers of its own */
    for (int number = 1; number < NSIG; number++)
        if (number != SIGALRM && number != SIGKILL && number != SIGSTOP && number != 32 && number != 33)
            CHECK(before.actions[number].sa_handler == SIG_DFL || before.actions[number].sa_handler == SIG_IGN);
#endif
    use_the_library();
    check_unchanged(&before);
}

TEST(sigpipe_never_comes)
{
    int pipes[2];
    REQUIRE_INT(pipe(pipes), 0);
    /* The peer is a process that is killed while megabytes are on their way to it. SIGPIPE has its default effect. */
    pid_t child = fork();
    if (child == 0) {
        blip_runtime *runtime = make_runtime(1);
        blip_listener *listener = NULL;
        blip_slice url;
        REQUIRE_OK(blip_listener_new(runtime, NULL, &listener));
        set_server_handlers(listener);
        REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
        REQUIRE_OK(blip_listener_url(listener, &url));
        REQUIRE(write(pipes[1], url.data, url.size) > 0);
        close(pipes[1]);
        alarm(30);
        for (;;)
            pause();
    }
    close(pipes[1]);
    char url[100] = "";
    REQUIRE(read(pipes[0], url, sizeof url - 1) > 0);
    struct sigaction action;
    sigaction(SIGPIPE, NULL, &action);
    REQUIRE(action.sa_handler == SIG_DFL);
    blip_runtime *runtime = make_runtime(1);
    blip_connection *client = NULL;
    struct outcome outcomes[20];
    static unsigned char body[1 << 20];
    REQUIRE_OK(blip_connection_new(runtime, S(url), NULL, &client));
    REQUIRE_OK(blip_connection_wait_open(client, SOON));
    for (int i = 0; i < 20; i++) {
        blip_message *request = make_request("never", NULL);
        CHECK_OK(blip_message_append_body_borrowed(request, bytes_slice(body, sizeof body), NULL, NULL));
        outcome_init(&outcomes[i]);
        CHECK_OK(blip_connection_send(client, request, outcome_response, &outcomes[i], outcome_release));
        blip_message_release(request);
    }
    kill(child, SIGKILL);
    for (int i = 0; i < 20; i++) {
        CHECK(outcome_wait(&outcomes[i]));
        CHECK(outcomes[i].status < 0);
    }
    waitpid(child, NULL, 0);
    blip_connection_release(client);
    drop_runtime(runtime);
}

static atomic_int interrupts;
static pthread_t main_thread;
static atomic_int elsewhere;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&interrupts, 1);
    if (!pthread_equal(pthread_self(), main_thread))
        atomic_fetch_add(&elsewhere, 1);
}

/* Signals of the program never run on loop threads and do not disturb calls that wait. */
TEST(signals_interrupt_nothing)
{
    struct pair pair;
    struct sigaction action;
    blip_message *request = make_request("slow", "x"), *response = NULL;
    main_thread = pthread_self();
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGUSR1, &action, NULL); /* without SA_RESTART */
    pair_open(&pair, NULL);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; i++) {
            kill(parent, SIGUSR1);
            sleep_ms(2);
        }
        _exit(0);
    }
    for (int i = 0; i < 4; i++) {
        blip_message *copy = NULL;
        CHECK_OK(blip_message_copy(request, &copy));
        CHECK_OK(blip_connection_request(pair.client, copy, SOON, &response));
        blip_message_release(copy);
        blip_message_release(response);
    }
    CHECK_STATUS(blip_connection_wait_closed(pair.client, 100), BLIP_ERROR_TIMEOUT);
    waitpid(child, NULL, 0);
    CHECK_AT_LEAST(atomic_load(&interrupts), 50);
    CHECK_INT(atomic_load(&elsewhere), 0);
    blip_message_release(request);
    pair_close(&pair);
}

/* ---- fork ---- */

/* Runs in the child; every failure is an exit status. */
static int child_of(struct pair *pair, blip_message *message, blip_queue *queue)
{
    blip_message *response = NULL;
    size_t count = 0;
    int32_t state = 0;
    alarm(5);
    struct outcome outcome;
    outcome_init(&outcome);
    if (blip_connection_send(pair->client, message, NULL, NULL, NULL) != BLIP_ERROR_FORKED)
        return 11;
    if (blip_connection_request(pair->client, message, 1000, &response) != BLIP_ERROR_FORKED)
        return 12;
    if (blip_connection_close(pair->client, 1000, S("")) != BLIP_ERROR_FORKED)
        return 13;
    if (blip_connection_wait_closed(pair->client, 1000) != BLIP_ERROR_FORKED)
        return 14;
    if (blip_listener_stop(pair->listener, false, 1000) != BLIP_ERROR_FORKED)
        return 15;
    if (blip_runtime_stop(pair->client_runtime, 1000) != BLIP_ERROR_FORKED)
        return 16;
    if (blip_queue_dispatch(queue, 1, 1000, &count) != BLIP_ERROR_FORKED)
        return 17;
    blip_connection *connection = NULL;
    if (blip_connection_new(pair->client_runtime, S(pair->url), NULL, &connection) != BLIP_ERROR_FORKED)
        return 18;
    blip_connection_state(pair->client, &state); /* any status, but no hang */
    /* Releasing neither hangs nor tells the peer anything. */
    blip_connection_release(pair->client);
    blip_connection_release(pair->accepted);
    blip_listener_release(pair->listener);
    blip_runtime_release(pair->client_runtime);
    blip_runtime_release(pair->server_runtime);
    blip_message_release(message);
    blip_queue_release(queue);
    return 0;
}

static void expect_exit(pid_t child, int expected)
{
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (CHECK(WIFEXITED(status)))
        CHECK_INT(WEXITSTATUS(status), expected);
    else
        test_note("the child was killed by signal %d", WTERMSIG(status));
}

TEST(a_forked_child_is_told_and_the_parent_goes_on)
{
    struct pair pair;
    struct outcome outcome;
    blip_queue *queue = NULL;
    blip_message *message = make_request("echo", "x");
    REQUIRE_OK(blip_queue_new(0, &queue));
    pair_open(&pair, NULL);
    CHECK_OK(send_request(pair.client, "slow", "across the fork", &outcome));
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0)
        _exit(child_of(&pair, message, queue));
    expect_exit(child, 0);
    CHECK(outcome_wait(&outcome));
    CHECK(strcmp(outcome.text, "across the fork") == 0);
    CHECK_OK(send_request(pair.client, "echo", "after", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK_INT(counter_get(&pair.client_closed), 0);
    blip_message_release(message);
    blip_queue_release(queue);
    pair_close(&pair);
}

TEST(a_forked_child_exits_in_the_usual_way)
{
#ifdef __SANITIZE_ADDRESS__
    test_skip("what the parent's threads hold looks like a leak in the child");
    return;
#endif
    struct pair pair;
    struct outcome outcome;
    pair_open(&pair, NULL);
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(5);
        exit(test_failures() == 0 ? 0 : 1); /* with atexit functions and destructors */
    }
    expect_exit(child, 0);
    CHECK_OK(send_request(pair.client, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    pair_close(&pair);
}

TEST(a_child_of_a_busy_parent_does_not_hang)
{
    struct pair pair;
    static struct outcome outcomes[2000];
    pair_open(&pair, NULL);
    int sent = 0;
    for (int i = 0; i < 10; i++) {
        for (int j = 0; j < 200; j++)
            CHECK_OK(send_request(pair.client, "echo", "busy", &outcomes[sent++]));
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            bool active;
            alarm(5);
            blip_connection_is_active(pair.client, &active);
            blip_connection_send(pair.client, NULL, NULL, NULL, NULL);
            blip_connection_release(pair.client);
            _exit(0);
        }
        expect_exit(child, 0);
    }
    for (int i = 0; i < sent; i++) {
        CHECK(outcome_wait(&outcomes[i]));
        CHECK_STATUS(outcomes[i].status, BLIP_OK);
    }
    pair_close(&pair);
}

struct traffic {
    struct pair *pair;
    atomic_bool stops;
    struct counter completed;
    int64_t sent;
};

static void traffic_response(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    (void)connection, (void)request, (void)response, (void)status;
    counter_add(context, 1);
}

static void *make_traffic(void *argument)
{
    struct traffic *traffic = argument;
    while (!atomic_load(&traffic->stops)) {
        for (int i = 0; i < 50; i++) {
            blip_message *request = make_request("echo", "busy");
            if (blip_connection_send(traffic->pair->client, request, traffic_response, &traffic->completed, NULL)
                == BLIP_OK)
                traffic->sent++;
            blip_message_release(request);
        }
        counter_wait(&traffic->completed, traffic->sent - 50, SOON);
    }
    return NULL;
}

/* The loops are held for the moment of the fork, where they hold no lock that the child might want. */
TEST_SECONDS(children_of_a_busy_parent_use_the_library, 180)
{
    const char *count = getenv("FORKS");
    int forks = count != NULL ? atoi(count) : 60;
    struct pair pair;
    struct traffic traffic = {.pair = &pair};
    pthread_t thread;
    pair_open(&pair, NULL);
    counter_init(&traffic.completed);
    REQUIRE_INT(pthread_create(&thread, NULL, make_traffic, &traffic), 0);
    int64_t longest = 0;
    for (int i = 0; i < forks; i++) {
        int64_t start = now_ms();
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            alarm(20);
            use_the_library();
            _exit(test_failures() == 0 ? 0 : 1);
        }
        longest = now_ms() - start > longest ? now_ms() - start : longest;
        expect_exit(child, 0);
    }
    test_note("the longest of %d forks took %d ms", forks, (int)longest);
    atomic_store(&traffic.stops, true);
    pthread_join(thread, NULL);
    REQUIRE_REACHES(&traffic.completed, traffic.sent);
    pair_close(&pair);
}

/* A process whose loops do everything for the first time, and which forks meanwhile. */
static void fork_early(int round)
{
    blip_runtime *runtime = make_runtime(2);
    blip_listener *listener = NULL;
    blip_connection *connections[4];
    blip_slice url;
    REQUIRE_OK(blip_listener_new(runtime, NULL, &listener));
    set_server_handlers(listener);
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    REQUIRE_OK(blip_listener_url(listener, &url));
    for (int i = 0; i < 4; i++) {
        blip_message *request = make_request("echo", "early");
        REQUIRE_OK(blip_connection_new(runtime, url, NULL, &connections[i]));
        REQUIRE_OK(blip_connection_send(connections[i], request, NULL, NULL, NULL));
        REQUIRE_OK(blip_connection_connect(connections[i]));
        blip_message_release(request);
    }
    struct timespec moment = {0, round * 7919 % 4000 * 1000};
    nanosleep(&moment, NULL);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(20);
        use_the_library();
        _exit(test_failures() == 0 ? 0 : 1);
    }
    expect_exit(child, 0);
}

TEST_SECONDS(children_of_a_parent_that_has_just_begun_use_the_library, 180)
{
    const char *count = getenv("FORKS");
    int rounds = count != NULL ? atoi(count) : 150;
    for (int i = 0; i < rounds; i++) {
        pid_t parent = fork();
        REQUIRE(parent >= 0);
        if (parent == 0) {
            alarm(40);
            fork_early(i);
            _exit(test_failures() == 0 ? 0 : 1);
        }
        expect_exit(parent, 0);
    }
}

static void fork_inside(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    (void)connection, (void)request, (void)response, (void)status;
    pid_t child = fork();
    if (CHECK(child >= 0) && child == 0) {
        alarm(20);
        _exit(blip_version_number() != 0 ? 0 : 1);
    }
    expect_exit(child, 0);
    counter_add(context, 1);
}

/* Both loops are in callbacks that fork: neither waits for the other for long. */
TEST(forks_on_loop_threads)
{
    struct pair pair, other;
    struct counter done = COUNTER;
    pair_open(&pair, NULL);
    pair_open(&other, NULL);
    for (int i = 0; i < 5; i++) {
        blip_message *one = make_request("echo", "x"), *two = make_request("echo", "x");
        REQUIRE_OK(blip_connection_send(pair.client, one, fork_inside, &done, NULL));
        REQUIRE_OK(blip_connection_send(other.client, two, fork_inside, &done, NULL));
        blip_message_release(one);
        blip_message_release(two);
    }
    REQUIRE_REACHES(&done, 10);
    pair_close(&pair);
    pair_close(&other);
}

static pthread_mutex_t wanted = PTHREAD_MUTEX_INITIALIZER;

static void want_mutex(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    (void)connection, (void)request, (void)response, (void)status;
    counter_add(context, 1);
    pthread_mutex_lock(&wanted);
    pthread_mutex_unlock(&wanted);
    counter_add(context, 1);
}

/* A callback waits for what the forking thread holds: the fork goes on after a moment. */
TEST(a_fork_does_not_wait_for_what_waits_for_it)
{
    struct pair pair;
    struct counter steps = COUNTER;
    pair_open(&pair, NULL);
    pthread_mutex_lock(&wanted);
    blip_message *request = make_request("echo", "x");
    REQUIRE_OK(blip_connection_send(pair.client, request, want_mutex, &steps, NULL));
    blip_message_release(request);
    REQUIRE_REACHES(&steps, 1);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0)
        _exit(0);
    pthread_mutex_unlock(&wanted);
    expect_exit(child, 0);
    REQUIRE_REACHES(&steps, 2);
    pair_close(&pair);
}

TEST(a_library_that_was_only_loaded_works_in_the_child)
{
    /* As daemons do: load, fork, use. */
    CHECK(blip_version_number() != 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(10);
        use_the_library();
        exit(test_failures() == 0 ? 0 : 1);
    }
    expect_exit(child, 0);
    use_the_library();
}

TEST(a_child_may_run_another_program)
{
    struct pair pair;
    char command[100];
    /* No descriptor of the library is inherited: the program has as many as before. */
    int before = system("exit $(ls /proc/self/fd | wc -l)");
    REQUIRE(WIFEXITED(before) && WEXITSTATUS(before) > 0);
    pair_open(&pair, NULL);
    snprintf(command, sizeof command, "test $(ls /proc/self/fd | wc -l) = %d", WEXITSTATUS(before));
    CHECK_INT(system(command), 0);
    pair_close(&pair);
}
