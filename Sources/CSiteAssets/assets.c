/* The files of the library's pages, as they lie beside this one. */
#pragma clang diagnostic ignored "-Wc23-extensions"
#include "CSiteAssets.h"

#include <string.h>

static const unsigned char style[] = {
#embed "files/style.css"
};
static const unsigned char icon[] = {
#embed "files/icon.svg"
};

static const struct {
    const char *name;
    const unsigned char *bytes;
    size_t size;
} assets[] = {
    { "style.css", style, sizeof style },
    { "icon.svg", icon, sizeof icon },
};

const void *csite_asset(const char *name, size_t *size)
{
    for (size_t i = 0; i < sizeof assets / sizeof *assets; i++) {
        if (strcmp(assets[i].name, name) == 0) {
            *size = assets[i].size;
            return assets[i].bytes;
        }
    }
    return NULL;
}
