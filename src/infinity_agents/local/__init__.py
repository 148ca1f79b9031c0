"""The embedded host: the same agent in one process, over one SQLite file, with no account anywhere."""
