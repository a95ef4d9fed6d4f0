"""Build the documents as a site, with a page for each Python file that shows the Go source beside it.

hack/side_by_side runs Sphinx, and `extension` adds the pages. `go_source` and `python_source` cut files into pieces,
`pairs` puts the pieces side by side by the map of hack/go_map.py, `calls` finds what a call calls, and `highlight`
writes the HTML of a piece.
"""
