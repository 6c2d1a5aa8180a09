"""The cases, by what they are about. Importing this registers them."""

from . import (  # noqa: F401
    acknowledgements,
    bad_frames,
    bye,
    checksums,
    client_replies,
    client_upgrade,
    closing,
    compression,
    frames,
    limits,
    numbers,
    properties,
    replies,
    scheduling,
    server_upgrade,
    version1,
    window,
)
