"""A server that ends at once, with a last word."""

import sys

sys.exit("broken: cannot read /etc/broken.conf: no such file")
