"""The ground floor: types, errors, options, files, HTTP and configuration that every room uses."""
