"""Hexadecimal for the cases of the suite, whose octets are characters of native strings."""


def b2a_hex(text):
    return (text if isinstance(text, bytes) else text.encode("latin-1")).hex()
