import CBLIP

/// The version of the library, from blip.h.
enum LibraryVersion {
    static let text = "\(BLIP_VERSION_MAJOR).\(BLIP_VERSION_MINOR).\(BLIP_VERSION_PATCH)"
}
