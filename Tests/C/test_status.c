/* Statuses, constants, versions. */

#include "support.h"

#include <stdio.h>
#include <string.h>

struct constant {
    const char *name;
    int64_t value;
};
#include "constants.inc"

enum { COUNT = sizeof constants / sizeof *constants };

static bool is_status(const struct constant *constant)
{
    return strncmp(constant->name, "BLIP_ERROR_", 11) == 0 || strcmp(constant->name, "BLIP_OK") == 0;
}

TEST(every_status_has_its_own_name_and_message)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (!is_status(&constants[i]))
            continue;
        blip_status status = (blip_status)constants[i].value;
        CHECK(strcmp(blip_status_name(status), constants[i].name) == 0);
        const char *message = blip_status_message(status);
        if (!CHECK(message != NULL))
            continue;
        CHECK_AT_LEAST(strlen(message), 2);
        for (size_t j = 0; j < i; j++) {
            if (!is_status(&constants[j]))
                continue;
            CHECK(constants[j].value != constants[i].value);
            CHECK(strcmp(blip_status_message((blip_status)constants[j].value), message) != 0);
        }
    }
}

TEST(errors_lie_in_their_bands)
{
    CHECK_INT(BLIP_OK, 0);
    for (size_t i = 0; i < COUNT; i++)
        if (is_status(&constants[i]) && constants[i].value != 0)
            CHECK(constants[i].value < 0 && constants[i].value >= -999);
    CHECK(BLIP_DATA_END > 0);
    CHECK(BLIP_AGAIN > 0);
    CHECK(BLIP_DATA_END != BLIP_AGAIN);
}

static bool is_known(int64_t value)
{
    for (size_t i = 0; i < COUNT; i++)
        if ((is_status(&constants[i]) || constants[i].value == BLIP_DATA_END || constants[i].value == BLIP_AGAIN)
            && constants[i].value == value)
            return true;
    return false;
}

TEST(any_integer_has_a_name_and_a_message)
{
    static const int32_t extremes[] = {INT32_MIN, INT32_MIN + 1, INT32_MAX, INT32_MAX - 1, -100000, 100000};
    for (int32_t status = -2000; status <= 2000; status++) {
        const char *name = blip_status_name(status), *message = blip_status_message(status);
        REQUIRE(name != NULL && *name != 0 && message != NULL && *message != 0);
        if (!is_known(status))
            REQUIRE(strcmp(name, "BLIP_ERROR_UNKNOWN") == 0);
    }
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++) {
        CHECK(strcmp(blip_status_name(extremes[i]), "BLIP_ERROR_UNKNOWN") == 0);
        CHECK(*blip_status_message(extremes[i]) != 0);
    }
}

static bool in_group(const struct constant *constant, const char *group)
{
    return strncmp(constant->name, group, strlen(group)) == 0;
}

TEST(constants_of_a_group_differ)
{
    static const char *const groups[] = {"BLIP_EVENT_", "BLIP_STATE_", "BLIP_LIMIT_", "BLIP_COUNTER_", "BLIP_MESSAGE_",
        "BLIP_FLAG_", "BLIP_LOG_", "BLIP_TLS_", "BLIP_ERROR_"};
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        size_t members = 0;
        for (size_t i = 0; i < COUNT; i++) {
            if (!in_group(&constants[i], groups[g]))
                continue;
            members++;
            for (size_t j = 0; j < i; j++)
                if (in_group(&constants[j], groups[g]))
                    CHECK(constants[i].value != constants[j].value);
        }
        CHECK_AT_LEAST(members, 2);
    }
}

TEST(header_and_library_are_of_the_same_version)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", BLIP_VERSION_MAJOR, BLIP_VERSION_MINOR, BLIP_VERSION_PATCH);
    CHECK_INT(blip_version_number(), BLIP_VERSION_NUMBER);
    CHECK_INT(BLIP_VERSION_NUMBER, BLIP_VERSION_MAJOR * 1000000 + BLIP_VERSION_MINOR * 1000 + BLIP_VERSION_PATCH);
    REQUIRE(blip_version_string() != NULL);
    CHECK_TEXT(blip_text(blip_version_string()), text);
}

TEST(blip_text_makes_slices)
{
    const char *text = "b\xc3\xa9zier";
    blip_slice slice = blip_text(text);
    CHECK_POINTER(slice.data, text);
    CHECK_INT(slice.size, 7);
    CHECK_INT(blip_text("").size, 0);
    CHECK_INT(blip_text(NULL).size, 0);
}

TEST(texts_of_statuses_stay_where_they_are)
{
    const char *name = blip_status_name(BLIP_ERROR_TIMEOUT), *message = blip_status_message(BLIP_ERROR_TIMEOUT);
    for (int i = 0; i < 1000; i++) {
        blip_status_name(i - 500);
        blip_status_message(i - 500);
    }
    CHECK_POINTER(blip_status_name(BLIP_ERROR_TIMEOUT), name);
    CHECK_POINTER(blip_status_message(BLIP_ERROR_TIMEOUT), message);
    CHECK_TEXT(blip_text(name), "BLIP_ERROR_TIMEOUT");
}
