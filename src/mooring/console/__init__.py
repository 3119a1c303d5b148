"""The console: a web page over a running host, with one state, one stream of changes and one API"""
