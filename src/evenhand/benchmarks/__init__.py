"""Benchmarks: samples, grades and metrics; a benchmark never sees which method ran."""
