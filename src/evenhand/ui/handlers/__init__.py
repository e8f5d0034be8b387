"""The handlers of the workbench: they read what a page shows, and the modules in `pages` write it."""
