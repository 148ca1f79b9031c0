"""Benchmarks: each measures this runtime beside the same work done by hand."""
