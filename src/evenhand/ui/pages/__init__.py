"""The HTML of the workbench, one module per page. Values come in, escaped markup goes out; nothing is read here."""
