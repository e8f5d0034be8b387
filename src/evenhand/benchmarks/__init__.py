"""Benchmarks: samples, grades and metrics. A benchmark does not know which method ran."""
