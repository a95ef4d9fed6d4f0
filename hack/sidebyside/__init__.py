"""Build the documents as a site, with a page for each Python file that shows the Go source beside it.

hack/side_by_side runs Sphinx, and `extension` adds the pages. `go_source` and `python_source` cut files into pieces,
`pairs` pairs the pieces according to the map of hack/go_map.py, `calls` finds the definition that a call calls, and
`highlight` writes the HTML of a piece.
"""
