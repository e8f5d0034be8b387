"""What every web application of Evenhand shares: errors, keys, the listening socket, the protected site and its layout.

The server, the workbench and the pages of raters are built on it; it knows none of them.
"""
