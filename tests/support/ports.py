"""Free ports on loopback, for servers that tests start."""

import socket


def free_ports(count: int) -> list[int]:
    """`count` different ports that nothing listens on at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
