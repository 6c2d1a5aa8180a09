/* The files of the library's pages: those beside this one, and the JavaScript client. */
#pragma clang diagnostic ignored "-Wc23-extensions"
#include "CSiteAssets.h"

#include <string.h>

static const unsigned char style_css[] = {
#embed "files/style.css"
};
static const unsigned char icon_svg[] = {
#embed "files/icon.svg"
};
static const unsigned char dashboard_html[] = {
#embed "files/dashboard.html"
};
static const unsigned char dashboard_js[] = {
#embed "files/dashboard.js"
};
static const unsigned char figures_js[] = {
#embed "files/figures.js"
};
static const unsigned char blip_js[] = {
#embed "../../bindings/javascript/src/blip.js"
};
static const unsigned char crc32_js[] = {
#embed "../../bindings/javascript/src/crc32.js"
};
static const unsigned char engine_js[] = {
#embed "../../bindings/javascript/src/engine.js"
};
static const unsigned char errors_js[] = {
#embed "../../bindings/javascript/src/errors.js"
};
static const unsigned char growing_bytes_js[] = {
#embed "../../bindings/javascript/src/growing-bytes.js"
};
static const unsigned char inflater_js[] = {
#embed "../../bindings/javascript/src/inflater.js"
};
static const unsigned char properties_js[] = {
#embed "../../bindings/javascript/src/properties.js"
};
static const unsigned char varint_js[] = {
#embed "../../bindings/javascript/src/varint.js"
};

static const struct {
    const char *name;
    const unsigned char *bytes;
    size_t size;
} assets[] = {
    { "style.css", style_css, sizeof style_css },
    { "icon.svg", icon_svg, sizeof icon_svg },
    { "dashboard.html", dashboard_html, sizeof dashboard_html },
    { "dashboard.js", dashboard_js, sizeof dashboard_js },
    { "figures.js", figures_js, sizeof figures_js },
    { "blip.js", blip_js, sizeof blip_js },
    { "crc32.js", crc32_js, sizeof crc32_js },
    { "engine.js", engine_js, sizeof engine_js },
    { "errors.js", errors_js, sizeof errors_js },
    { "growing-bytes.js", growing_bytes_js, sizeof growing_bytes_js },
    { "inflater.js", inflater_js, sizeof inflater_js },
    { "properties.js", properties_js, sizeof properties_js },
    { "varint.js", varint_js, sizeof varint_js },
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
