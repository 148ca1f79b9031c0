"""JSON at every boundary of the process: validated on the way in, in the fixed spelling on the way out."""
