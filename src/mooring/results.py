"""What results leave on disk: embedded files, outputs too large to show, records of calls.

Everything here blocks: it is called from worker threads. Names are made here and nowhere else; nothing
that a server says is ever part of a path.
"""
