"""Benchmarks: the real server under load, beside peers on the same machine in the same run."""
