"""A scripted BLIP peer that tests other implementations of BLIP 2 and 3 over WebSocket, as their client and server."""
