"""The workbench: web pages for people over all runs of a folder (`evenhand ui`)."""
