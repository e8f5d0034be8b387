"""Web pages for people: the workbench over all runs (`evenhand ui`), and the parts that other pages reuse.

`site` is the web application with its protection, `layout` the frame of a page, `assets` its style and script.
"""
