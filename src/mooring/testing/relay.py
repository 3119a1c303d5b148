"""A child process that is the far end of a `FakeServer`: standard input and output, passed on.

Run as a script. The server itself stays in the test's process, so that its tools are the test's own
functions; when it closes the socket, the child dies as one that crashed.
"""

import os
import socket
import sys
import threading

CRASHED = 3


def _pour(far: socket.socket) -> None:
    with os.fdopen(1, "wb", buffering=0) as out:
        while data := far.recv(65536):
            while data:
                data = data[out.write(data) :]
        sys.stderr.write("crashed, as it was told to\n")
        sys.stderr.flush()
        os._exit(CRASHED)


def main() -> None:
    far = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(target=_pour, args=(far,), daemon=True).start()
    while data := os.read(0, 65536):
        far.sendall(data)
    os._exit(0)


if __name__ == "__main__":
    main()
