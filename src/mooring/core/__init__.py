"""The pure core: values in, values out. No I/O, no clock, no logging, no event loop, no SDK."""
