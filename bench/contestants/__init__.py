"""Who is measured: one file each.

A contestant file holds

- `LABEL`: its name in tables and charts
- `PACKAGES`: the distributions whose versions are shown, its own first
- `REQUIRES`: pinned requirements of the environment it gets, or nothing to run in the project's own
- `IMPORT`: the statement that a program needs before it can connect
- `searcher(servers)`: optional; an async function that answers questions about ten thousand tools
- `connect(servers)`: an async context in which all servers are connected and listed; it gives a `Clients`

Whatever belongs to the library is imported inside `connect`: the harness reads the rest without it.
Each contestant uses its library's lowest public call and, for many servers, the library's own way where it
has one, with parallel connecting switched on where there is such a switch; else `together` opens all at once.
"""
