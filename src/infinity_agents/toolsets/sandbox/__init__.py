"""The sandbox server: a working copy of a repository per thread, in which an agent edits files and runs commands.

``python -m infinity_agents.toolsets.sandbox --root DIRECTORY`` serves it.
"""
