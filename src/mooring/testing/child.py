"""Child process of a `FakeServer`: copies standard input and output to and from a socket.

Run as a script. The server itself stays in the test's process, so that its tools are functions of the test.
When the server closes the socket, the child exits as if it had crashed.
"""

import os
import socket
import sys
import threading

CRASHED = 3


def _copy_output(connection: socket.socket) -> None:
    with os.fdopen(1, "wb", buffering=0) as out:
        while data := connection.recv(65536):
            while data:
                data = data[out.write(data) :]
        sys.stderr.write("crashed as scripted\n")
        sys.stderr.flush()
        os._exit(CRASHED)


def main() -> None:
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(target=_copy_output, args=(connection,), daemon=True).start()
    while data := os.read(0, 65536):
        connection.sendall(data)
    os._exit(0)


if __name__ == "__main__":
    main()
