"""A server that exits at once with an error message."""

import sys

sys.exit("broken: cannot read /etc/broken.conf: no such file")
